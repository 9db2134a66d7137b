#pragma once

#include "phases/engine.h"

namespace hybrid_trainer {

/// Result of an independent step of this rank, with the messages that arrived.
struct LocalStep {
  GradientMeasurement own;          // measurement of this rank's micro-batches
  std::int64_t since_exchange = 0;  // steps since an exchange began, including this one
  /// Nonzero if an exchange of the last fragment arrived: number of steps of all ranks before it
  /// began, and number of these steps whose update was skipped because of non-finite values.
  std::int64_t steps = 0, skipped = 0;
};

class LocalTraining {
 public:
  virtual ~LocalTraining() = default;
  /// Runs a step with a local update, which is skipped if the gradient is not finite. Blocks. Waits
  /// for other ranks only if a due exchange has not arrived.
  virtual LocalStep wait_for_step(const Batch& batch) = 0;
  /// Waits until all ranks have equal weights and optimizer state. Returns the arrived messages.
  virtual LocalStep wait_for_exact_weights() = 0;
};

}  // namespace hybrid_trainer
