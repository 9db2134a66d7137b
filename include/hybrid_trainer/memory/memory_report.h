#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {

/// Live bytes on one line, for progress: "498 MB (parameters 400 MB, gradients 97.8 MB)"; kinds
/// without bytes are left out.
std::string memory_line(const MemoryUse& use);

/// A table with one row per kind in use, and for each pool its live and peak bytes; ends with a row
/// of totals.
std::string memory_table(const std::vector<std::shared_ptr<const MemoryPool>>& pools);

}  // namespace hybrid_trainer
