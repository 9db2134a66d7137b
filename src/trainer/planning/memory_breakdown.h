#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/trainer/memory_simulation.h"

namespace hybrid_trainer {

/// Bytes that each option of the config keeps out of the device's memory: the simulated peaks of
/// the run without that option alone, less those of the run. Options that do the same share it:
/// each of them saves little where the other stays. `rank`: whose memory.
std::vector<MemorySaving> simulate_savings(const HybridTrainerConfig& config, Device device,
                                           const ModelRegistry& registry = model_families(),
                                           const SimulatedRank& rank = {});

/// Device memory that one part of a model takes in updates: of each kind the highest, not all at the
/// same moment.
struct PartMemory {
  std::string part;  // the first word of its weights' names, as "video"; "" of what belongs to none
  std::array<std::size_t, kMemoryKinds> by_kind{};
  std::size_t of(MemoryKind kind) const { return by_kind[static_cast<std::size_t>(kind)]; }
};

/// Of each part of the config's model, in the order in which they take memory first. What is allocated
/// under no label, or another one than a part's, belongs to none.
std::vector<PartMemory> simulate_part_memory(const HybridTrainerConfig& config, Device device,
                                             const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
