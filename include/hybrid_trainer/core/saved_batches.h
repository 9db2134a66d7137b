#pragma once

namespace hybrid_trainer {

/// Names of the batches in a run's state begin with it and a dot: a prediction that waits for its decision
/// has them. They are the same on all ranks.
inline constexpr const char* kSavedBatches = "phases.batch";

}  // namespace hybrid_trainer
