#pragma once

#include <string>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// The keys that most users need, by the question that they answer: each with the config's value and
/// the first sentence of its help, one key a line.
std::string essential_text(const HybridTrainerConfig& config);
/// The same as tables of Markdown, with which docs/CONFIG.md begins.
std::string essential_markdown(const HybridTrainerConfig& config);

}  // namespace hybrid_trainer
