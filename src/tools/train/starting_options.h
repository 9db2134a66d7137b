#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/model_files/model_folder.h"
#include "src/tools/config_arguments.h"

namespace hybrid_trainer {

/// Takes what a folder of PEFT says of its adapters of `model`, settings.init_from, to go on from their values; how they are trained
/// is the configuration's, which `source` gave. Throws UsageError where that says something else of
/// them than the folder, DataError where the adapter is of another model.
void take_adapter(TrainingRunSettings& settings, const std::string& folder,
                  const ModelFolder& model, const std::string& command,
                  const ConfigArguments& source);

/// What `train --resume` and `finetune --resume` were given beside settings; "" where left out.
struct ResumedOptions {
  std::string command, run;
  std::string model_option, model;  // --init-from or --model
  std::string adapter, data, validation;
};

/// Checks the options against the run's own files. Throws UsageError where one names another model
/// or adapter than the run began with, MissingInput where the run's data have gone and no option
/// says where to. The base of adapters may have moved.
void check_resumed_options(const ResumedOptions& given, const HybridTrainerConfig& config);

}  // namespace hybrid_trainer
