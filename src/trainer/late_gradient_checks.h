#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/trainer/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// Adds what does not go with phases.ingredient other_ranks, whatever the number of ranks.
void collect_late_gradient_problems(const HybridTrainerConfig& config,
                                    std::vector<std::string>& found);

/// Adds what is wrong with settings of local steps; without them, with any ingredient, those that
/// would change nothing.
void collect_local_step_problems(const PhaseConfig& phases, std::vector<std::string>& found);

}  // namespace hybrid_trainer
