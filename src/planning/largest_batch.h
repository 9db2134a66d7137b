#pragma once

#include <cstdint>
#include <functional>

#include "hybrid_trainer/planning/memory_plan.h"
#include "hybrid_trainer/planning/memory_simulation.h"

namespace hybrid_trainer {

using Simulate =
    std::function<MemoryNeed(const HybridTrainerConfig& config, SimulatedPhases phases)>;

/// The largest data.batch_size that fits in the device's budget. `need` is that of the batch as it is.
/// Bytes grow by as much with each example, but for the rounding of blocks.
std::int64_t largest_batch(HybridTrainerConfig config, const MemoryNeed& need,
                           const MemoryBudgets& budgets, const Simulate& simulate);

}  // namespace hybrid_trainer
