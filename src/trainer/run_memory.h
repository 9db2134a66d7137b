#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hybrid_trainer/trainer/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// Most device memory of a run: the smaller one of memory.device_budget and
/// training.memory_budget_mb.
std::optional<std::size_t> device_budget(const HybridTrainerConfig& config);

/// The config with the options that memory.plan auto chooses, each told in one line; as it is
/// without it. Throws OutOfMemory where nothing fits.
HybridTrainerConfig with_planned_memory(const HybridTrainerConfig& config,
                                        const ModelRegistry& registry,
                                        std::vector<std::string>& told);

/// The config with the options that a run was planned with, which stay for its whole life.
HybridTrainerConfig with_memory_of(const HybridTrainerConfig& run, HybridTrainerConfig config);

/// Throws OutOfMemory where the run cannot stay in its budgets even in micro-batches of one
/// example. Takes none of the memory.
void check_memory(const HybridTrainerConfig& config, const ModelRegistry& registry);

}  // namespace hybrid_trainer
