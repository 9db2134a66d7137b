#pragma once

#include "phases/engine.h"

namespace hybrid_trainer {

/// The gradients of a model whose other ranks' parts arrive in later steps: phases.method
/// asynchronous_gradients.
class DelayedGradients {
 public:
  virtual ~DelayedGradients() = default;
  /// Computes forward and backward of this rank's own micro-batches and starts sending their
  /// gradient to the others. Returns their mean loss. Blocks.
  virtual double wait_for_own_gradient(const Batch& batch) = 0;
  /// Returns the gradient of all ranks of the step `lag` before the last one, or, of `all` that are
  /// pending, the oldest; absent where there is none. Blocks only where it has not arrived.
  virtual std::optional<GradientMeasurement> wait_for_gradient(bool all) = 0;
  /// Makes the update by the gradient that arrived, or, not `finite`, none.
  virtual ArrivedUpdate apply(bool finite) = 0;
  /// The weights become those predicted for the next step from the pending gradients.
  virtual void predict_weights() = 0;
  /// The weights become the exact ones. All pending gradients were waited for before.
  virtual void wait_for_exact_weights() = 0;
};

}  // namespace hybrid_trainer
