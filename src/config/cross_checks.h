#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// Appends what is wrong with values that no range expresses, and with keys that do not go together.
void collect_cross_problems(const HybridTrainerConfig& config, std::vector<std::string>& found);

}  // namespace hybrid_trainer
