#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/nn/network.h"

namespace hybrid_trainer {

/// The config without what a step does beside its gradient: for measuring how long that takes.
HybridTrainerConfig gradient_alone(HybridTrainerConfig config);

/// Seconds that the gradient of a batch takes in the precision of Full: the median of five, or of as many as
/// begin in 0.3 seconds, behind one that is not counted.
double measure_gradient(Network& network, const HybridTrainerConfig& config, const Batch& batch,
                        const Stream& stream);

}  // namespace hybrid_trainer
