#pragma once

#include "phases/engine.h"

namespace hybrid_trainer {

/// A step that this rank made by itself, and what the ranks told each other in it.
struct LocalStep {
  GradientMeasurement own;          // over its own micro-batches
  std::int64_t since_exchange = 0;  // steps since one began, this one among them
  /// Where an exchange arrived, of fragments the last one: steps of all ranks until it began, and those
  /// of them that made no update because something was not finite.
  std::int64_t steps = 0, skipped = 0;
};

/// A model that each rank trains by itself between two exchanges of weights: phases.method local_sgd.
class LocalTraining {
 public:
  virtual ~LocalTraining() = default;
  /// Makes a step with an update of its own, which is skipped where it is not finite. Blocks; for
  /// other ranks only where an exchange is due and has not arrived.
  virtual LocalStep wait_for_step(const Batch& batch) = 0;
  /// Waits until all ranks have the same weights and optimizer state. Returns what they told each
  /// other meanwhile, of steps made by themselves.
  virtual LocalStep wait_for_exact_weights() = 0;
};

}  // namespace hybrid_trainer
