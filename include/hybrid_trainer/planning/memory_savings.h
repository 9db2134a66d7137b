#pragma once

#include <vector>

#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/planning/memory_simulation.h"

namespace hybrid_trainer {

/// Bytes that each option of the config keeps out of the device's memory: the simulated peaks of
/// the run without that option alone, less those of the run. Options that do the same share it:
/// each of them saves little where the other stays. `rank`: whose memory.
std::vector<MemorySaving> simulate_savings(const HybridTrainerConfig& config, Device device,
                                           const ModelRegistry& registry = model_families(),
                                           const SimulatedRank& rank = {});

}  // namespace hybrid_trainer
