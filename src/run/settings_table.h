#pragma once

#include <string>
#include <utility>
#include <vector>

#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"

namespace hybrid_trainer {

/// What a user wants to see before the first step: model, data, optimizer, phases, precision,
/// machine; one setting per line.
std::string settings_table(const HybridTrainerConfig& config, const ModelFamily& family,
                           LanguageModel& model, const HybridTrainer& trainer,
                           std::int64_t train_tokens, const std::string& data,
                           const Stream& stream);

}  // namespace hybrid_trainer
