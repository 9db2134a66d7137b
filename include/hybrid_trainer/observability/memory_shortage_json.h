#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

/// oom.json: what ended a run for want of memory. Keys: phase and step (null before the first step),
/// pool, asked{bytes, kind, label, dtype, shape}, budget_bytes (null: the system had no more),
/// live_bytes, cached_bytes, free_bytes (of the budget, if what is cached were returned),
/// live_by_kind[{kind, bytes}] and largest_blocks[{bytes, kind, label, dtype, shape}], the largest
/// first, and blocks, the number of all live ones.
std::string to_json(const MemoryShortage& shortage, std::optional<Phase> phase, std::int64_t step);

}  // namespace hybrid_trainer
