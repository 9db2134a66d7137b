#pragma once

// Blocks of rows (kernels/low_rank.h) as kernels take them.

#include "hybrid_trainer/kernels/low_rank.h"
#include "kernels/cuda/launch.cuh"

namespace hybrid_trainer::kernels::cuda {

/// Plain arrays, which device code may index.
struct BlockRows {
  int count;
  std::int64_t rank;
  std::int64_t first_row[DiagonalBlocks::kMost], rows[DiagonalBlocks::kMost];
  /// The block of a stacked row, which becomes the row within it.
  __device__ int find(std::int64_t& row) const {
    int block = 0;
    while (row >= rows[block]) row -= rows[block++];
    return block;
  }
};

inline BlockRows rows_of(const DiagonalBlocks& blocks) {
  BlockRows plain{blocks.count, blocks.rank, {}, {}};
  for (int p = 0; p < blocks.count; ++p) {
    plain.first_row[p] = blocks.first_row[static_cast<std::size_t>(p)];
    plain.rows[p] = blocks.rows[static_cast<std::size_t>(p)];
  }
  return plain;
}

}  // namespace hybrid_trainer::kernels::cuda
