#pragma once

#include <string>

#include "hybrid_trainer/trainer/run_files.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// The model of a run's folder or of a Hugging Face folder, using all cores; skipped checkpoints are
/// reported on standard error. Of a Hugging Face folder step is 0, data empty, and
/// config.data.sequence_length at most 1024 of its context; its weights are held as lora.base `form`
/// says. Throws like load_trained_run and
/// read_hugging_face_weights.
TrainedRun open_model(const std::string& folder, const Stream& stream,
                      RunWeights weights = RunWeights::kLast, const std::string& form = "fp32");

/// Adds --average, which says which weights are read.
void add_average_option(po::options_description& options, bool& average);
inline RunWeights run_weights(bool average) {
  return average ? RunWeights::kAverage : RunWeights::kLast;
}

}  // namespace hybrid_trainer
