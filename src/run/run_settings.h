#pragma once

#include <optional>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/data/dataset.h"
#include "hybrid_trainer/run/task.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// What decides, beside the configuration, whether a key has an effect.
struct RunSurroundings {
  Device device;
  int ranks = 1;
};

/// One line for each reason why keys that were set explicitly change nothing in this run: which keys,
/// by the names they were set by, and the reason. A name of several keys is told where none of them
/// changes anything. Keys of elements of lists are not looked at.
std::vector<std::string> inert_settings(const HybridTrainerConfig& config,
                                        const std::vector<std::string>& names,
                                        const RunSurroundings& run);

/// Whether there is a run, which goes on.
bool goes_on(const TrainingRunSettings& settings);

/// The settings of a run that goes on, which has its weights from its checkpoint or, where there is
/// none yet, from the folders that it began from; those of a run that begins are left as they are.
TrainingRunSettings with_base(TrainingRunSettings settings);

/// A run's batches of data.batch_size · gradient_accumulation.micro_batches of the examples.
ShuffledBatches shuffled_batches(DatasetPart part, const HybridTrainerConfig& config);

/// The folder of settings.init_from: `opened` where that is its path.
std::optional<ModelFolder> opened_model(const TrainingRunSettings& settings,
                                        const ModelFolder& opened);

/// Throws ConfigError where parts, the optimizer's groups or the adapters' targets do not fit the model,
/// which is made without memory.
void check_model(const HybridTrainerConfig& config, const ModelRegistry& registry);

/// The config of a run, completed by its task and with the options that memory.plan chooses; what was
/// chosen, and what has no effect, is told in words. Throws ConfigError, OutOfMemory.
HybridTrainerConfig resolved_config(const TrainingRunSettings& settings, Task& task,
                                    std::vector<std::string>& told);

}  // namespace hybrid_trainer
