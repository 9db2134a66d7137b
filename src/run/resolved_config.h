#pragma once

#include <string>
#include <vector>

#include "src/run/training_source.h"

namespace hybrid_trainer {

/// The config of a run, completed from the data, the --init-from folder and the machine; what was
/// planned is told in words. Throws ConfigError, OutOfMemory.
HybridTrainerConfig resolved_config(const TrainingRunSettings& settings,
                                    const TrainingSource& source, std::vector<std::string>& told);

}  // namespace hybrid_trainer
