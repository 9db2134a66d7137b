#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// A ready config by name. Throws ConfigError with the nearest names.
HybridTrainerConfig preset_config(const std::string& name,
                                  const ModelRegistry& registry = model_families());
std::vector<std::string> preset_names(const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
