#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "src/sharding/weight_parts.h"

namespace hybrid_trainer {

/// This rank's parts of the weights; null where all ranks have all of them. A collective. Throws
/// ConfigError: see check_ranks.
std::unique_ptr<WeightParts> make_weight_parts(const HybridTrainerConfig& config,
                                               const std::vector<Parameter*>& weights,
                                               Communicator* ranks, const Stream& stream);

/// The configured optimizer, with its state where the memory settings want it: a
/// SpeculativeOptimizer where updates are delayed. Throws OutOfMemory.
std::unique_ptr<Optimizer> make_step_optimizer(const HybridTrainerConfig& config,
                                               const std::vector<Parameter*>& parameters,
                                               const Stream& stream, MemoryPlaces& places);

}  // namespace hybrid_trainer
