#pragma once

#include <cstddef>
#include <cstdint>

#include "hybrid_trainer/core/stream.h"

namespace hybrid_trainer::kernels::cuda {

/// Blocks of one launch, threads in each, and the dynamic shared memory of a block.
struct Grid {
  unsigned int x = 1;
  unsigned int y = 1;
  unsigned int z = 1;
  unsigned int threads = 256;
  std::size_t shared_bytes = 0;
};

/// Grid with one thread per item.
inline Grid grid_for(std::int64_t items, unsigned int threads = 256) {
  return {.x = static_cast<unsigned int>((items + threads - 1) / threads), .threads = threads};
}

}  // namespace hybrid_trainer::kernels::cuda
