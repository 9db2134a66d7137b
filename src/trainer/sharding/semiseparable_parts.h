#pragma once

#include "hybrid_trainer/kernels/semiseparable.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// A matrix T + U·Vᵀ with sharded factors. Each rank stores T and some columns of U and V, as
/// evenly as possible. Columns are gathered for each product; results are bit-identical to one
/// rank's. With two ranks, N = 2,048 and r = 11 in f32, each rank stores 1/1.79 of the matrix.
class SemiseparableParts {
 public:
  /// Copies the rank's columns. `ranks` must outlive it. Throws Error for more ranks than columns.
  SemiseparableParts(const kernels::Semiseparable& whole, Communicator& ranks,
                     const Stream& stream);
  std::size_t bytes() const;                                    // stored by this rank
  kernels::Semiseparable gathered(const Stream& stream) const;  // collective
  /// Computes kernels::semiseparable_forward for each rank's own rows. Collective.
  void forward(const Tensor& y, const Tensor& x, kernels::Transpose transpose,
               const Stream& stream) const;
  /// Computes kernels::semiseparable_backward. u and v of `gradients` receive the gradients of this
  /// rank's columns, summed only over this rank's rows. Collective.
  void backward(const kernels::SemiseparableGradients& gradients, const Tensor& dy, const Tensor& x,
                const Stream& stream) const;
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
