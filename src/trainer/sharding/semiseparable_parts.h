#pragma once

#include "hybrid_trainer/kernels/semiseparable.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// A matrix T + U·Vᵀ with sharded factors. Each rank stores T and its own columns of U and V.
/// Ranks' numbers of columns differ by at most one. Columns are gathered for one product at a time,
/// with results that are bit-identical to those of a single rank. Since T is replicated, two ranks
/// save less than half of the memory: for N = 2,048 and r = 11 in f32, each stores 1/1.79 of it.
class SemiseparableParts {
 public:
  /// Copies the rank's columns. `ranks` must outlive it. Throws Error for more ranks than columns.
  SemiseparableParts(const kernels::Semiseparable& whole, Communicator& ranks,
                     const Stream& stream);
  std::size_t bytes() const;  // stored by this rank
  /// Gathers all columns. Collective.
  kernels::Semiseparable gathered(const Stream& stream) const;
  /// Computes kernels::semiseparable_forward for each rank's own rows. Collective.
  void forward(const Tensor& y, const Tensor& x, kernels::Transpose transpose,
               const Stream& stream) const;
  /// Computes kernels::semiseparable_backward. u and v of `gradients` are the gradients of this
  /// rank's columns, summed only over this rank's rows. Collective.
  void backward(const kernels::SemiseparableGradients& gradients, const Tensor& dy, const Tensor& x,
                const Stream& stream) const;
  /// Returns this rank's columns of U and of V.
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
