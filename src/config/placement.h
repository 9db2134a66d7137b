#pragma once

#include <cstdint>
#include <string>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {

/// Where a run keeps one kind of tensors while nothing computes with them.
struct Placement {
  std::string what;               // "weights"
  std::string place;              // of placement_names()
  std::int64_t bits;              // of an element
  std::vector<MemoryKind> kinds;  // as which memory counts them
};

/// One for each place of each kind, as the config says; of weights all places that any may lie at.
std::vector<Placement> placements(const HybridTrainerConfig& config);
/// Whether anything lies at this place.
bool uses_place(const HybridTrainerConfig& config, const std::string& place);
/// The keys that say where what lies and in how many bits, as a table in Markdown.
std::string placement_markdown();

}  // namespace hybrid_trainer
