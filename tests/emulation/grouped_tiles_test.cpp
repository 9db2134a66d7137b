#include "hybrid_trainer/kernels/experts.h"
#include "kernels/backend/tensor_core.cuh"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Tensor core instructions of a group's product, with operands contiguous along depth or across.
std::int64_t instructions(std::int64_t rows, std::int64_t size) {
  const Stream stream = cuda_stream();
  const auto zeros = [&](const Shape& shape) {
    return Tensor::zeros(shape, DType::kBF16, MemoryKind::kActivations, stream);
  };
  const GroupedRows group{
      copy_to(tensor_of({0, static_cast<double>(rows)}, {2}, DType::kI32, cpu_stream()), stream)};
  const Tensor x = zeros({rows, size}), y = zeros({rows, size}), w = zeros({size, size});
  stream.synchronize();
  emulation::multiply_adds() = 0;
  grouped_forward(y, x, group, {&w, 1}, {}, GradientMode::kOverwrite, stream);
  grouped_backward_input(x, y, group, {&w, 1}, GradientMode::kOverwrite, stream);
  grouped_backward_weight({&w, 1}, y, x, group, GradientMode::kOverwrite, stream);
  stream.synchronize();
  return emulation::multiply_adds();
}

TEST(EmulatedTensorCore, GroupedProductsHaveNoBankConflicts) {
  emulation::bank_conflicts() = 0;
  EXPECT_EQ(instructions(128, 256), 3 * 128 / 16 * 256 / 8 * 256 / 16);
  EXPECT_EQ(emulation::bank_conflicts(), 0);
}

/// A warp covers 64 rows, of which it skips the second half, and 64 columns.
TEST(EmulatedTensorCore, GroupedProductsSkipMissingRowsAndColumns) {
  const std::int64_t of_rows = 32 / 16 * 64 / 8 * 64 / 16, of_weight = 64 / 16 * 64 / 8 * 32 / 16;
  EXPECT_EQ(instructions(5, 64), 2 * of_rows + of_weight);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
