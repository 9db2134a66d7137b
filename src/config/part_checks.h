#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// Appends the problems of `parts` that need no model.
void collect_part_problems(const HybridTrainerConfig& config, std::vector<std::string>& found);

}  // namespace hybrid_trainer
