#pragma once

#include <string>

#include "hybrid_trainer/run/training_run.h"
#include "src/tools/config_arguments.h"

namespace hybrid_trainer {

/// Takes what a folder of PEFT says of its adapters, to go on from their values; how they are trained
/// is the configuration's, which `source` gave. Throws UsageError where that says something else of
/// them than the folder, DataError where the adapter is of another model.
void take_adapter(TrainingRunSettings& settings, const std::string& folder,
                  const std::string& command, const ConfigArguments& source);

}  // namespace hybrid_trainer
