#pragma once

#include "phases/engine.h"

namespace hybrid_trainer {

/// The optimizer of a model whose exact updates arrive in later steps: phases.method
/// asynchronous_optimizer.
class DelayedOptimizer {
 public:
  virtual ~DelayedOptimizer() = default;
  /// Starts the update by the last measurement's gradient, or, not `finite`, none. The weights become
  /// those predicted for the next step. Blocks only where the update that is due has not arrived.
  virtual ArrivedUpdate wait_for_update(bool finite) = 0;
  /// Waits for all pending updates; the weights are the exact ones.
  virtual void wait_for_exact_weights() = 0;
};

}  // namespace hybrid_trainer
