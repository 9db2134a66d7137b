#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// Throws one ConfigError with all that this many ranks cannot do; where there are fewer
/// micro-batches than ranks, with settings that keep the step's examples.
void check_ranks(const HybridTrainerConfig& config, int ranks);
/// Throws ConfigError where there are fewer micro-batches than ranks.
void check_micro_batches(const HybridTrainerConfig& config, int ranks);

}  // namespace hybrid_trainer
