#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {

/// Location of one kind of tensors between computations.
struct Placement {
  std::string what;               // "weights"
  std::string place;              // one of placement_names()
  std::int64_t bits;              // bits per element
  std::vector<MemoryKind> kinds;  // kinds under which the tensors are counted
};

/// Returns an entry per kind of tensors and location; weights may have several locations.
std::vector<Placement> placements(const HybridTrainerConfig& config);
bool uses_place(const HybridTrainerConfig& config, const std::string& place);
/// Returns a Markdown table of the keys that set locations and bits.
std::string placement_markdown();

}  // namespace hybrid_trainer
