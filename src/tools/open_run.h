#pragma once

#include <string>

#include "hybrid_trainer/trainer/run_files.h"

namespace hybrid_trainer {

/// The trained model in a run's folder, using all cores; skipped checkpoints are reported on
/// standard error. Throws like load_trained_run.
TrainedRun open_run(const std::string& folder, const Stream& stream);

}  // namespace hybrid_trainer
