#pragma once

#include "phases/engine.h"

namespace hybrid_trainer {

/// Result of an independent step of this rank, and the ranks' messages that arrived in it.
struct LocalStep {
  GradientMeasurement own;          // of this rank's micro-batches
  std::int64_t since_exchange = 0;  // steps since an exchange began, including this one
  /// Set if an exchange of the last fragment arrived: number of steps of all ranks before it began,
  /// and how many of them skipped the update because of non-finite values.
  std::int64_t steps = 0, skipped = 0;
};

/// A model that each rank trains independently between weight exchanges (phases.method local_sgd).
class LocalTraining {
 public:
  virtual ~LocalTraining() = default;
  /// Runs a step with a local update, which is skipped if not finite. Blocks; waits for other ranks
  /// only if a due exchange has not arrived.
  virtual LocalStep wait_for_step(const Batch& batch) = 0;
  /// Waits until all ranks have equal weights and optimizer state. Returns messages that arrived.
  virtual LocalStep wait_for_exact_weights() = 0;
};

}  // namespace hybrid_trainer
