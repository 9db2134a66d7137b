#pragma once

#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/trainer/memory_simulation.h"

namespace hybrid_trainer {

/// Returns the device memory that each memory option saves: simulated peaks without it, minus the
/// peaks with all options. Two options with the same effect each appear to save little.
std::vector<MemorySaving> simulate_savings(const HybridTrainerConfig& config, Device device,
                                           const ModelRegistry& registry = model_families(),
                                           const SimulatedRank& rank = {});

/// Peak device memory of one part of a model during updates, by kind. Peaks may not coincide.
struct PartMemory {
  std::string part;  // first word of its weights' names, such as "video"; "": no part
  std::array<std::size_t, kMemoryKinds> by_kind{};
  std::size_t of(MemoryKind kind) const { return by_kind[static_cast<std::size_t>(kind)]; }
};

/// Returns the memory of each part of the model, in order of first allocations; "": no part.
std::vector<PartMemory> simulate_part_memory(const HybridTrainerConfig& config, Device device,
                                             const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
