#pragma once

#include "hybrid_trainer/kernels/semiseparable.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// A matrix T + U·Vᵀ whose factors lie apart. Each rank keeps T and its own columns of U and V. Ranks
/// keep equally many columns in all, give or take one of U and one of V. They are gathered
/// for one product at a time, whose bits are those of one rank. Since T is on all of them, two ranks
/// keep less than half each: at N = 2,048 and r = 11 in f32 a rank keeps 1/1.79.
class SemiseparableParts {
 public:
  /// Copies the rank's columns. `ranks` must outlive it. Throws Error where there are more ranks than
  /// columns.
  SemiseparableParts(const kernels::Semiseparable& whole, Communicator& ranks,
                     const Stream& stream);
  std::size_t bytes() const;  // that this rank keeps
  /// All columns. Collective.
  kernels::Semiseparable gathered(const Stream& stream) const;
  /// As kernels::semiseparable_forward, each rank with rows of its own. Collective.
  void forward(const Tensor& y, const Tensor& x, kernels::Transpose transpose,
               const Stream& stream) const;
  /// As kernels::semiseparable_backward, but u and v are this rank's columns, of its own rows' sum.
  /// Collective.
  void backward(const kernels::SemiseparableGradients& gradients, const Tensor& dy, const Tensor& x,
                const Stream& stream) const;
  /// This rank's columns of U and of V.
  Shard columns_of_u() const { return shards_u_[static_cast<std::size_t>(ranks_.rank())]; }
  Shard columns_of_v() const { return shards_v_[static_cast<std::size_t>(ranks_.rank())]; }

 private:
  Tensor gathered_factor(const Tensor& own, const std::vector<Shard>& shards,
                         const Stream& stream) const;
  Communicator& ranks_;
  kernels::Semiseparable own_;
  std::vector<Shard> shards_u_, shards_v_;
};

}  // namespace hybrid_trainer
