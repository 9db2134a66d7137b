#pragma once

#include <unordered_map>
#include <vector>

#include "hybrid_trainer/distributed/ordered_sum.h"
#include "hybrid_trainer/nn/gradient_sink.h"

namespace hybrid_trainer {

/// The gradient of a step over ranks. That of each micro-batch is one f32 tensor, in which the
/// parameters follow one another; they are summed as leaves of the tree of
/// distributed/ordered_sum.h, so that the bits are the same on any number of ranks.
class OrderedGradients final : public GradientSink {
 public:
  /// All must outlive it; the parameters are the trainable ones.
  OrderedGradients(const std::vector<Parameter*>& parameters, Communicator& ranks,
                   const Stream& stream);
  Communicator& ranks() const { return ranks_; }
  /// What is written from now on is of one micro-batch. Throws OutOfMemory.
  void begin_leaf();
  /// Adds it as micro-batch `index` of the step. Throws Error where a parameter got no gradient,
  /// which another rank could not know.
  void end_leaf(std::int64_t index);
  /// gradient() is of the sum over all `leaves` of all ranks from now on. A collective.
  void reduce(std::int64_t leaves);
  /// Mean of the losses of all ranks' micro-batches, (1) f64 each here, in their order. A
  /// collective; blocks.
  double wait_for_mean_of(const std::vector<Tensor>& losses) const;
  /// Forgets what is there.
  void free();
  Tensor gradient(const Parameter& parameter) const override;

 private:
  const std::vector<Parameter*>& parameters_;
  Communicator& ranks_;
  const Stream& stream_;
  std::unordered_map<const Parameter*, std::int64_t> first_;  // element of each parameter
  std::int64_t elements_ = 0;
  OrderedSum sum_;
  Tensor values_;  // of one micro-batch, then of all
};

}  // namespace hybrid_trainer
