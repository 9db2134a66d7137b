#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// Operations a second, forward and backward, of a network of several parts that is no language model. It
/// is measured on few examples with stacks of one block and of two: the difference is a block's, the rest
/// that of convolutions and all else. Both count by their share of the network's operations. Wide or
/// long networks are measured narrower and shorter.
double measure_network_flops(const HybridTrainerConfig& config, const Stream& stream,
                             const ModelRegistry& registry);

}  // namespace hybrid_trainer
