#pragma once

#include "hybrid_trainer/planning/memory_plan.h"

namespace hybrid_trainer {

/// The config with places for memory.device_map "auto": in the order in which a pass uses them, as many
/// of embeddings, blocks and head on the device as fit its budget, then as many on the host as fit
/// that of the host, the rest in a file. Another map stays.
HybridTrainerConfig with_device_map(const HybridTrainerConfig& config, Device device,
                                    const MemoryBudgets& budgets, const ModelRegistry& registry);

}  // namespace hybrid_trainer
