#pragma once

#include <string>

#include "hybrid_trainer/trainer/run_files.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// The trained model in a run's folder, using all cores; skipped checkpoints are reported on
/// standard error. Throws like load_trained_run.
TrainedRun open_run(const std::string& folder, const Stream& stream,
                    RunWeights weights = RunWeights::kLast);

/// Adds --average, which says which weights are read.
void add_average_option(po::options_description& options, bool& average);
inline RunWeights run_weights(bool average) {
  return average ? RunWeights::kAverage : RunWeights::kLast;
}

}  // namespace hybrid_trainer
