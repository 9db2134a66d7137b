#pragma once

#include <string>

#include "hybrid_trainer/run_folder/run_files.h"

namespace hybrid_trainer {

/// Prints how good a network that is no language model is on held-out examples of its run's data, or of
/// `data`. Throws UsageError, OutOfMemory, Diverged.
void evaluate_network(const TrainedRun& run, const std::string& data, const std::string& precision,
                      bool json, const Stream& stream);

}  // namespace hybrid_trainer
