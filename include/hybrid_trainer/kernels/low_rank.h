#pragma once

#include <array>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Blocks of `rank` columns each, side by side in a wide matrix: block p is in rows
/// [first_row[p], first_row[p] + rows[p]) and columns [p·rank, (p+1)·rank), the rest is 0. Stacked
/// they lie one under the other.
struct DiagonalBlocks {
  static constexpr int kMost = 4;
  int count = 0;
  std::int64_t rank = 0;
  std::array<std::int64_t, kMost> first_row{}, rows{};

  std::int64_t columns() const { return count * rank; }
  std::int64_t stacked_rows() const {
    std::int64_t sum = 0;
    for (int p = 0; p < count; ++p) sum += rows[static_cast<std::size_t>(p)];
    return sum;
  }
};

/// wide = scale·stacked, block by block. wide: (O, blocks.columns()) f32 or bf16, stacked:
/// (blocks.stacked_rows(), blocks.rank) f32.
void spread_blocks(const Tensor& wide, const Tensor& stacked, const DiagonalBlocks& blocks,
                   float scale, const Stream& stream);

/// stacked (+)= scale·the blocks of wide, both f32.
void gather_blocks(const Tensor& stacked, const Tensor& wide, const DiagonalBlocks& blocks,
                   float scale, GradientMode mode, const Stream& stream);

}  // namespace hybrid_trainer::kernels
