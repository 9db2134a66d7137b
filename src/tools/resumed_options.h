#pragma once

#include <string>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

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
