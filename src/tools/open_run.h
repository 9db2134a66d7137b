#pragma once

#include <string>

#include "hybrid_trainer/trainer/run_files.h"

namespace hybrid_trainer {

/// The trained model in a run's folder, with all cores at work; what was passed over is told on
/// standard error. Throws as load_trained_run does.
TrainedRun open_run(const std::string& folder, const Stream& stream);

}  // namespace hybrid_trainer
