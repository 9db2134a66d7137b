#pragma once

#include <optional>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/data/dataset.h"
#include "hybrid_trainer/run/task.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Properties of a run that determine whether a key has an effect.
struct RunContext {
  Device device;
  int ranks = 1;
};

/// Returns one line for each reason why explicitly set keys have no effect. The line contains the
/// names of the options or keys that set them. A name that sets several keys is reported only if
/// none of these keys has an effect. Ignores keys of list elements.
std::vector<std::string> inert_settings(const HybridTrainerConfig& config,
                                        const std::vector<std::string>& names,
                                        const RunContext& run);

bool resumes(const TrainingRunSettings& settings);

/// Completes the settings of a resumed run. Its weights come from its checkpoint or, if it has no
/// checkpoint, from its initial folders. Returns the settings of a new run unchanged.
TrainingRunSettings with_base(TrainingRunSettings settings);

/// Returns batches of data.batch_size · gradient_accumulation.micro_batches examples.
ShuffledBatches shuffled_batches(DatasetPart part, const HybridTrainerConfig& config);

/// Returns the folder of settings.init_from. Returns `opened` if the paths are equal.
std::optional<ModelFolder> opened_model(const TrainingRunSettings& settings,
                                        const ModelFolder& opened);

/// Throws ConfigError if parts, optimizer groups or adapter targets do not fit the model. Makes the
/// model without allocating memory.
void check_model(const HybridTrainerConfig& config, const ModelRegistry& registry);

/// Returns the config of a run, completed by its task and by memory.plan. Adds the planner's
/// choices and the settings without effect to `notes`. Throws ConfigError, OutOfMemory.
HybridTrainerConfig resolved_config(const TrainingRunSettings& settings, Task& task,
                                    std::vector<std::string>& notes);

}  // namespace hybrid_trainer
