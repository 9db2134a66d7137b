#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/trainer/training_run.h"

namespace hybrid_trainer {

/// Takes what a folder of PEFT says of its adapters, to go on from their values; how they are trained
/// is the configuration's. `command` and `changes` (--set) are of the command line. Throws UsageError
/// where a change says what the folder says, DataError where the adapter is of another model.
void take_adapter(TrainingRunSettings& settings, const std::string& folder,
                  const std::string& command, const std::vector<std::string>& changes);

}  // namespace hybrid_trainer
