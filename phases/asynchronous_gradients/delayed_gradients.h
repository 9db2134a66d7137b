#pragma once

#include "phases/engine.h"

namespace hybrid_trainer {

/// Gradients with late contributions of other ranks (method asynchronous_gradients).
class DelayedGradients {
 public:
  virtual ~DelayedGradients() = default;
  /// Computes forward and backward of this rank's own micro-batches and starts sending their
  /// gradient to the other ranks. Returns their mean loss. Blocks.
  virtual double wait_for_own_gradient(const Batch& batch) = 0;
  /// Returns the gradient of all ranks in the step `lag` steps before the last one or, with `all`,
  /// in the oldest pending step; absent if there is none. Blocks only if it has not arrived.
  virtual std::optional<GradientMeasurement> wait_for_gradient(bool all) = 0;
  /// Makes the update by the gradient that arrived; skips it unless `finite`.
  virtual ArrivedUpdate apply(bool finite) = 0;
  /// Sets the weights to those predicted for the next step from the pending gradients.
  virtual void predict_weights() = 0;
  /// Restores the exact weights. Requires that no gradient is pending.
  virtual void wait_for_exact_weights() = 0;
};

}  // namespace hybrid_trainer
