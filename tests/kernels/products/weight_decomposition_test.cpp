#include "kernels/products/weight_decomposition.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(WeightDecomposition, FactorsEqualMagnitudesOverNorms) {
  const Stream stream = cpu_stream();
  const DiagonalBlocks blocks{.count = 2, .rank = 1, .first_row = {1, 3}, .rows = {1, 1}};
  const Tensor x = tensor_of({3, 4, 0, 2, 1, 1, 6, 8}, {4, 2}, DType::kF32, stream),
               magnitudes = tensor_of({5, 30}, {2}, DType::kF32, stream),
               norms = Tensor::empty({4}, DType::kF32, MemoryKind::kWorkspace, stream),
               factors = Tensor::empty_like(norms, MemoryKind::kWorkspace, stream);
  row_norms(norms, x, stream);
  expect_close(norms, {5, 2, std::sqrt(2.0), 10}, 1e-6);
  magnitude_factors(factors, magnitudes, norms, blocks, stream);
  expect_close(factors, {1, 2.5, 1, 3}, 1e-6);
  gather_rows(magnitudes, norms, Tensor{}, blocks, GradientMode::kOverwrite, stream);
  expect_close(magnitudes, {2, 10}, 1e-6);
  gather_rows(magnitudes, factors, norms, blocks, GradientMode::kAccumulate, stream);
  expect_close(magnitudes, {3.25, 10.3}, 1e-6);
  EXPECT_THROW(
      gather_rows(magnitudes, norms.rows(0, 3), Tensor{}, blocks, GradientMode::kOverwrite, stream),
      ShapeMismatch);
}

TEST(WeightDecomposition, ScalesColumnsWithBiasAndResidual) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = tensor_of({1, 2, 3, 4}, {2, 2}, dtype, stream),
                 residual = tensor_of({10, 20, 30, 40}, {2, 2}, dtype, stream),
                 factors = tensor_of({2, 0.5}, {2}, DType::kF32, stream),
                 bias = tensor_of({1, -1}, {2}, DType::kF32, stream), y = clone(x, stream);
    scale_columns(y, x, factors, bias, residual, stream);
    expect_close(y, {13, 20, 37, 41}, 1e-6);
    scale_columns(y, x, factors, Tensor{}, Tensor{}, stream);
    expect_close(y, {2, 1, 6, 2}, 1e-6);
    multiply(y, y, x, stream);
    expect_close(y, {2, 2, 18, 8}, 1e-6);
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
