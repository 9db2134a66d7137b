#pragma once

#include <cstddef>

#include "hybrid_trainer/trainer/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// Bytes of device memory that the model of the config takes on CUDA for a forward and backward
/// pass and an update in the precisions of Warmup, Full and Correct, laid out as the run will lay
/// it out. Makes the same calls as a step on a simulated device, which needs no GPU and no memory
/// and runs nothing. A predictor's own tensors and the CUDA context are not included.
std::size_t simulated_step_bytes(const HybridTrainerConfig& config,
                                 const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
