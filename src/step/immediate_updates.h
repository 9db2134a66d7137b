#pragma once

#include <cmath>
#include <unordered_map>
#include <vector>

#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/optim/optimizer.h"

namespace hybrid_trainer {

/// Gradients that nothing but their update reads: each updates its weight as soon as it is complete,
/// and is gone then. From one, or a loss, on that is not finite, no weight is updated.
class ImmediateUpdates final : public GradientSink {
 public:
  /// All must outlive it.
  ImmediateUpdates(const std::vector<Parameter*>& parameters, Optimizer& optimizer,
                   const Stream& stream);
  /// Begins a step. Throws Diverged where the last one began to update and did not end.
  void begin(float learning_rate);
  /// A loss of this step.
  void observe_loss(double loss) { is_finite_ = is_finite_ && std::isfinite(loss); }
  Tensor gradient(const Parameter& parameter) const override;
  /// Blocks until it is known whether the gradient is finite.
  void ready(const Parameter& parameter, const Stream& stream) override;
  /// Ends a step whose gradients are complete; returns the L2 norm of all, as
  /// gradient_square_sums sums it on one device. Throws Diverged where it or a loss is not finite
  /// and some weights are updated.
  double end();
  /// Some weights have this step's update and others do not.
  bool is_between() const { return is_between_; }
  /// Throws Diverged if so.
  void require_whole() const;

 private:
  struct Slot {
    std::size_t index = 0;
    bool is_complete = false;
    double square_sum = 0;
    Tensor gradient{};
  };
  const std::vector<Parameter*>& parameters_;
  Optimizer& optimizer_;
  const Stream& stream_;
  mutable std::unordered_map<const Parameter*, Slot> slots_;
  float learning_rate_ = 0;
  bool is_finite_ = true, is_between_ = false;
};

}  // namespace hybrid_trainer
