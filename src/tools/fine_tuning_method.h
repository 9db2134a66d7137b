#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/trainer/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// full: all weights; lora: adapters beside weights in 16 bits; qlora: beside weights in 4 bits.
const std::vector<std::string>& fine_tuning_methods();

/// What a fine-tuning run of a model begins with, by a method; --set changes it. Throws UsageError.
HybridTrainerConfig fine_tuning_config(const ModelConfig& model, const std::string& method);

}  // namespace hybrid_trainer
