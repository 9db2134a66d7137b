#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/run/language_data.h"
#include "src/tools/config_arguments.h"

namespace hybrid_trainer {

/// Common options of `hybrid train` and `hybrid finetune`. An option is "" if it is not given.
struct TrainingOptions {
  std::string command, model_option;  // "train", "--init-from"; "finetune", "--model"
  ConfigArguments source{};
  std::string model{}, adapter{}, data{}, validation{}, columns{}, run{}, device{}, method{},
      export_to{};
  std::optional<int> ranks{};
  bool resume = false, json = false;
};

/// Adds --run, --resume, --ranks, --tensorboard, --device, --export and --json.
void add_training_options(po::options_description& options, TrainingOptions& requested);

/// Returns the settings of a run with this configuration. `set_keys` are the explicitly set keys,
/// `read` the inputs that are already open. Throws UsageError if the options contradict the
/// adapters' folder, and DataError if the adapters are for a different model.
TrainingRunSettings settings_of(const TrainingOptions& requested,
                                const std::vector<std::string>& arguments,
                                const HybridTrainerConfig& config,
                                const std::vector<std::string>& set_keys,
                                const std::shared_ptr<const ReadInputs>& read);

/// Checks the options of a resumed run against its files. Throws UsageError if an option names a
/// different model or adapter than at the start of the run. Throws MissingInput if the run's data
/// do not exist and no option contains their new path. The base of adapters may have moved.
void check_resumed_options(const TrainingOptions& given, const HybridTrainerConfig& config);

}  // namespace hybrid_trainer
