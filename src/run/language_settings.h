#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/run/task.h"

namespace hybrid_trainer {

/// What the user is shown of a language model, its adapters, its data and its batches, line by line.
/// `data`: the text of that line.
std::vector<NamedText> language_settings(const HybridTrainerConfig& config,
                                         const ModelFamily& family, const std::string& data,
                                         LossModel& model);

}  // namespace hybrid_trainer
