#pragma once

#include "phases/engine.h"

namespace hybrid_trainer {

/// Gradients to which other ranks contribute later (method asynchronous_gradients).
class DelayedGradients {
 public:
  virtual ~DelayedGradients() = default;
  /// Computes this rank's gradient and starts sending it. Returns this rank's mean loss. Blocks.
  virtual double wait_for_own_gradient(const Batch& batch) = 0;
  /// Returns the gradient of all ranks `lag` steps ago or, if `all` is set, of the oldest pending
  /// step; absent if there is none. Blocks only if it has not arrived.
  virtual std::optional<GradientMeasurement> wait_for_gradient(bool all) = 0;
  /// Makes the update by the arrived gradient, or skips it if `finite` is false.
  virtual ArrivedUpdate apply(bool finite) = 0;
  /// Predicts the weights of the next step from the pending gradients.
  virtual void predict_weights() = 0;
  /// Restores the exact weights. Requires that no gradient is pending.
  virtual void wait_for_exact_weights() = 0;
};

}  // namespace hybrid_trainer
