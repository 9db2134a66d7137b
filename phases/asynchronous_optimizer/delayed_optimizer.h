#pragma once

#include "phases/engine.h"

namespace hybrid_trainer {

/// The optimizer of a model with delayed exact updates (method asynchronous_optimizer).
class DelayedOptimizer {
 public:
  virtual ~DelayedOptimizer() = default;
  /// Starts the update by the last measured gradient, or skips it if `finite` is false, and
  /// predicts the weights of the next step. Blocks only if the due update has not arrived.
  virtual ArrivedUpdate wait_for_update(bool finite) = 0;
  /// Waits for all pending updates and makes the weights exact.
  virtual void wait_for_exact_weights() = 0;
};

}  // namespace hybrid_trainer
