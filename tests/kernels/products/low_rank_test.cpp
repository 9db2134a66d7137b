#include "hybrid_trainer/kernels/matmul.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Rows 1–2 and 4–6 of seven, with rank 2. Rows 0 and 3 are in no block.
DiagonalBlocks two_blocks() { return {.count = 2, .rank = 2, .first_row = {1, 4}, .rows = {2, 3}}; }

TEST(DiagonalBlocks, SpreadScalesAndFillsZeros) {
  const Stream stream = cpu_stream();
  const DiagonalBlocks blocks = two_blocks();
  const Tensor stacked = random_tensor({5, 2}, DType::kF32, 1, stream);
  const Values values = values_of(stacked);
  for (const DType dtype : kRealTypes) {
    const Tensor wide = random_tensor({7, 4}, dtype, 2, stream);
    spread_blocks(wide, stacked, blocks, 0.5f, stream);
    Values wanted(28, 0.0);
    for (std::size_t row = 0; row < 5; ++row) {
      const std::size_t to = row < 2 ? 1 + row : 2 + row, block = row < 2 ? 0 : 1;
      for (std::size_t c = 0; c < 2; ++c)
        wanted[to * 4 + block * 2 + c] = 0.5 * values[row * 2 + c];
    }
    expect_close(wide, wanted, tolerance_of(dtype));
  }
}

TEST(DiagonalBlocks, GatherScalesInBothModes) {
  const Stream stream = cpu_stream();
  const DiagonalBlocks blocks = two_blocks();
  const Tensor wide = random_tensor({7, 4}, DType::kF32, 1, stream),
               stacked = random_tensor({5, 2}, DType::kF32, 2, stream);
  const Values from = values_of(wide), before = values_of(stacked);
  for (const double kept : {1.0, 0.0}) {
    const Tensor to = clone(stacked, stream);
    gather_blocks(to, wide, blocks, 3.0f,
                  kept == 0 ? GradientMode::kOverwrite : GradientMode::kAccumulate, stream);
    Values wanted;
    for (std::size_t row = 0; row < 5; ++row) {
      const std::size_t at = row < 2 ? 1 + row : 2 + row, block = row < 2 ? 0 : 1;
      for (std::size_t c = 0; c < 2; ++c)
        wanted.push_back(kept * before[row * 2 + c] + 3 * from[at * 4 + block * 2 + c]);
    }
    expect_close(to, wanted, 1e-6);
  }
}

TEST(DiagonalBlocks, RefuseMismatchedShapes) {
  const Stream stream = cpu_stream();
  const Tensor wide = random_tensor({6, 4}, DType::kF32, 1, stream),
               stacked = random_tensor({5, 2}, DType::kF32, 2, stream);
  EXPECT_THROW(spread_blocks(wide, stacked, two_blocks(), 1, stream), ShapeMismatch);
  EXPECT_THROW(gather_blocks(random_tensor({4, 2}, DType::kF32, 2, stream),
                             random_tensor({7, 4}, DType::kF32, 1, stream), two_blocks(), 1,
                             GradientMode::kOverwrite, stream),
               ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
