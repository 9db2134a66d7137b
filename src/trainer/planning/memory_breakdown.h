#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/trainer/memory_simulation.h"

namespace hybrid_trainer {

/// Returns the device memory that each option of the config saves: the simulated peaks of a run
/// without this option, minus the peaks of the run. If two options have the same effect, each
/// appears to save little, because the other one remains. `rank`: the rank to simulate.
std::vector<MemorySaving> simulate_savings(const HybridTrainerConfig& config, Device device,
                                           const ModelRegistry& registry = model_families(),
                                           const SimulatedRank& rank = {});

/// Peak device memory of one part of a model during updates, by kind. Peaks may not coincide.
struct PartMemory {
  std::string part;  // first word of its weights' names, such as "video"; "" for the rest
  std::array<std::size_t, kMemoryKinds> by_kind{};
  std::size_t of(MemoryKind kind) const { return by_kind[static_cast<std::size_t>(kind)]; }
};

/// Returns the memory of each part of the config's model, in order of their first allocation.
/// Allocations without a part's label are counted under "".
std::vector<PartMemory> simulate_part_memory(const HybridTrainerConfig& config, Device device,
                                             const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
