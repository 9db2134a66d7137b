#include "hybrid_trainer/kernels/normalization.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

struct LayerNormCase {
  LayerNormCase(std::int64_t row_count, std::int64_t column_count, DType dtype,
                const Stream& stream)
      : rows(row_count),
        columns(column_count),
        x(random_tensor({rows, columns}, dtype, 1, stream, 2.0)),
        weight(random_tensor({columns}, DType::kF32, 2, stream)),
        bias(random_tensor({columns}, DType::kF32, 3, stream)),
        dy(random_tensor({rows, columns}, dtype, 4, stream)),
        y(Tensor::empty_like(x, MemoryKind::kActivations, stream)),
        mean(Tensor::empty({rows}, DType::kF32, MemoryKind::kActivations, stream)),
        rstd(Tensor::empty_like(mean, MemoryKind::kActivations, stream)) {}
  Values forward(const Stream& stream) const {
    layer_norm_forward(y, mean, rstd, x, weight, bias, epsilon, stream);
    return values_of(y);
  }
  std::int64_t rows, columns;
  float epsilon = 1e-5f;
  Tensor x, weight, bias, dy, y, mean, rstd;
};

Values reference_forward(const LayerNormCase& c) {
  const Values x = values_of(c.x), weight = values_of(c.weight), bias = values_of(c.bias);
  const auto columns = static_cast<std::size_t>(c.columns);
  Values y(x.size());
  for (std::size_t row = 0; row < x.size() / columns; ++row) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < columns; ++i)
      mean += x[row * columns + i] / static_cast<double>(columns);
    for (std::size_t i = 0; i < columns; ++i) {
      variance += std::pow(x[row * columns + i] - mean, 2) / static_cast<double>(columns);
    }
    for (std::size_t i = 0; i < columns; ++i) {
      y[row * columns + i] = (x[row * columns + i] - mean) /
                                 std::sqrt(variance + static_cast<double>(c.epsilon)) * weight[i] +
                             bias[i];
    }
  }
  return y;
}

TEST(LayerNorm, ForwardMatchesReference) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const auto& [rows, columns] : {std::pair{1, 1}, {7, 33}, {130, 257}, {5, 768}}) {
      LayerNormCase c(rows, columns, dtype, stream);
      for (const float epsilon : {1e-5f, 0.5f}) {
        c.epsilon = epsilon;
        c.forward(stream);
        expect_close(c.y, reference_forward(c), tolerance_of(dtype), concat(rows, "x", columns));
      }
    }
  }
}

TEST(LayerNorm, ForwardWithoutMomentsGivesSameBits) {
  const Stream stream = cpu_stream();
  const LayerNormCase c(7, 33, DType::kF32, stream);
  c.forward(stream);
  const Tensor other = Tensor::empty_like(c.y, MemoryKind::kActivations, stream);
  layer_norm_forward(other, Tensor(), Tensor(), c.x, c.weight, c.bias, 1e-5f, stream);
  expect_same_bits(other, c.y);
}

TEST(LayerNorm, BackwardMatchesFiniteDifferences) {
  const Stream stream = cpu_stream();
  const LayerNormCase c(5, 13, DType::kF32, stream);
  const auto forward = [&] { return c.forward(stream); };
  forward();
  const Values weights = values_of(c.dy);
  const Tensor dx = Tensor::empty_like(c.x, MemoryKind::kActivations, stream);
  const Tensor dweight = Tensor::empty_like(c.weight, MemoryKind::kGradients, stream);
  const Tensor dbias = Tensor::empty_like(c.bias, MemoryKind::kGradients, stream);
  layer_norm_backward(dx, GradientMode::kOverwrite, dweight, dbias, GradientMode::kOverwrite, c.dy,
                      c.x, c.mean, c.rstd, c.weight, stream);
  expect_close(dx, finite_differences(c.x, weights, 1e-2, forward), 1e-3, "dx");
  expect_close(dweight, finite_differences(c.weight, weights, 1e-1, forward), 1e-4, "dweight");
  expect_close(dbias, finite_differences(c.bias, weights, 1e-1, forward), 1e-4, "dbias");
}

TEST(LayerNorm, BackwardAccumulatesAndRepeatsBitForBit) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const LayerNormCase c(300, 129, dtype, stream);
    c.forward(stream);
    Tensor dx[2], dweight[2], dbias[2];
    for (int run = 0; run < 2; ++run) {
      dx[run] = Tensor::zeros({300, 129}, dtype, MemoryKind::kActivations, stream);
      dweight[run] = random_tensor({129}, DType::kF32, 5, stream);
      dbias[run] = random_tensor({129}, DType::kF32, 6, stream);
      layer_norm_backward(dx[run], GradientMode::kOverwrite, dweight[run], dbias[run],
                          GradientMode::kAccumulate, c.dy, c.x, c.mean, c.rstd, c.weight, stream);
    }
    expect_same_bits(dx[0], dx[1]);
    expect_same_bits(dweight[0], dweight[1]);
    expect_same_bits(dbias[0], dbias[1]);
    Values twice = values_of(dx[0]);
    for (double& value : twice) value *= 2;
    Values sum = values_of(random_tensor({129}, DType::kF32, 5, stream));
    const Values kept = sum;
    const Values once = values_of(dweight[0]);
    layer_norm_backward(dx[0], GradientMode::kAccumulate, dweight[0], dbias[0],
                        GradientMode::kOverwrite, c.dy, c.x, c.mean, c.rstd, c.weight, stream);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = once[i] - kept[i];
    expect_close(dx[0], twice, tolerance_of(dtype), "dx");
    expect_close(dweight[0], sum, 2e-5, "dweight");
  }
}

TEST(LayerNorm, ThrowsOnMismatch) {
  const Stream stream = cpu_stream();
  const LayerNormCase c(4, 8, DType::kF32, stream);
  const Tensor short_weight = random_tensor({7}, DType::kF32, 1, stream);
  EXPECT_THROW(layer_norm_forward(c.y, c.mean, c.rstd, c.x, short_weight, c.bias, 1e-5f, stream),
               ShapeMismatch);
  EXPECT_THROW(
      layer_norm_backward(c.y, GradientMode::kOverwrite, c.weight, c.bias, GradientMode::kOverwrite,
                          c.dy, c.x, Tensor(), c.rstd, c.weight, stream),
      ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
