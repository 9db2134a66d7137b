#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// The group of optimizer.groups that a part stands for.
OptimizerGroupConfig group_of(const PartConfig& part);

/// See HybridTrainerConfig::with_parts.
HybridTrainerConfig with_applied_parts(HybridTrainerConfig config);

}  // namespace hybrid_trainer
