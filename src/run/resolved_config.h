#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/run/task.h"
#include "hybrid_trainer/run/training_run.h"

namespace hybrid_trainer {

/// The config of a run, completed by its task and with the options that memory.plan chooses; what was
/// chosen, and what has no effect, is told in words. Throws ConfigError, OutOfMemory.
HybridTrainerConfig resolved_config(const TrainingRunSettings& settings, Task& task,
                                    std::vector<std::string>& told);

}  // namespace hybrid_trainer
