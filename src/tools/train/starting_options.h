#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/run/language_data.h"
#include "src/tools/config_arguments.h"

namespace hybrid_trainer {

/// What `hybrid train` and `hybrid finetune` are both given; "" where left out.
struct TrainingOptions {
  std::string command, model_option;  // "train", "--init-from"; "finetune", "--model"
  ConfigArguments source{};
  std::string model{}, adapter{}, data{}, validation{}, columns{}, run{}, device{}, method{},
      export_to{};
  std::optional<int> ranks{};
  bool resume = false, json = false;
};

/// Adds --run, --resume, --ranks, --tensorboard, --device, --export and --json.
void add_training_options(po::options_description& options, TrainingOptions& asked);

/// The run of a configuration, for which `set_keys` were set, on the inputs `read`; what the command line `arguments` gave
/// of adapters and device goes into it. Throws UsageError where the options say something else of the
/// adapters than their folder, DataError where the adapter is of another model.
TrainingRunSettings settings_of(const TrainingOptions& asked,
                                const std::vector<std::string>& arguments,
                                const HybridTrainerConfig& config,
                                const std::vector<std::string>& set_keys,
                                const std::shared_ptr<const ReadInputs>& read);

/// Checks the options of a run that goes on against its own files. Throws UsageError where one names
/// another model or adapter than the run began with, MissingInput where the run's data have gone and no
/// option says where to. The base of adapters may have moved.
void check_resumed_options(const TrainingOptions& given, const HybridTrainerConfig& config);

}  // namespace hybrid_trainer
