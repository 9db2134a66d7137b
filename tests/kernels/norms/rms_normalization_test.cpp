#include "hybrid_trainer/kernels/normalization.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr float kEpsilon = 0.5f;

struct RmsCase {
  RmsCase(std::int64_t rows, std::int64_t columns, DType dtype, const Stream& stream)
      : x(random_tensor({rows, columns}, dtype, 1, stream, 2.0)),
        weight(random_tensor({columns}, DType::kF32, 2, stream)),
        dy(random_tensor({rows, columns}, dtype, 4, stream)),
        y(Tensor::empty_like(x, MemoryKind::kActivations, stream)),
        rstd(Tensor::empty({rows}, DType::kF32, MemoryKind::kActivations, stream)) {}
  Values forward(const Stream& stream) const {
    rms_norm_forward(y, rstd, x, weight, {kEpsilon}, stream);
    return values_of(y);
  }
  Tensor x, weight, dy, y, rstd;
};

Values rms_reference(const RmsCase& c) {
  const Values x = values_of(c.x), weight = values_of(c.weight);
  const std::size_t columns = weight.size();
  Values y(x.size());
  for (std::size_t row = 0; row < x.size(); row += columns) {
    double squares = 0;
    for (std::size_t i = 0; i < columns; ++i) squares += x[row + i] * x[row + i];
    const double root =
        std::sqrt(squares / static_cast<double>(columns) + static_cast<double>(kEpsilon));
    for (std::size_t i = 0; i < columns; ++i) y[row + i] = x[row + i] / root * weight[i];
  }
  return y;
}

TEST(RmsNorm, ForwardMatchesReference) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const auto& [rows, columns] : {std::pair{1, 1}, {7, 33}, {130, 257}, {5, 768}}) {
      const RmsCase c(rows, columns, dtype, stream);
      c.forward(stream);
      expect_close(c.y, rms_reference(c), tolerance_of(dtype), concat(rows, "x", columns));
      const Tensor other = Tensor::empty_like(c.y, MemoryKind::kActivations, stream);
      rms_norm_forward(other, Tensor(), c.x, c.weight, {kEpsilon}, stream);
      expect_same_bits(other, c.y);
    }
  }
}

TEST(RmsNorm, RoundsBeforeGain) {
  const Stream stream = cpu_stream();
  const Tensor x = tensor_of({1, 1.0078125}, {1, 2}, DType::kBF16, stream);
  const Tensor gain = tensor_of({3, 3}, {2}, DType::kF32, stream);
  const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  rms_norm_forward(y, Tensor(), x, gain, {1.0f}, stream);
  const double root = std::sqrt((1 + 1.0078125 * 1.0078125) / 2 + 1);
  for (std::size_t i = 0; i < 2; ++i) {
    const float quotient = to_float(to_bfloat16(static_cast<float>(values_of(x)[i] / root)));
    EXPECT_EQ(values_of(y)[i], static_cast<double>(to_float(to_bfloat16(3 * quotient)))) << i;
  }
}

TEST(RmsNorm, BackwardMatchesFiniteDifferencesAndAccumulates) {
  const Stream stream = cpu_stream();
  const RmsCase c(5, 13, DType::kF32, stream);
  const auto forward = [&] { return c.forward(stream); };
  forward();
  const Tensor dx = Tensor::zeros(c.x.shape(), DType::kF32, MemoryKind::kActivations, stream);
  const Tensor dweight = Tensor::zeros({13}, DType::kF32, MemoryKind::kGradients, stream);
  for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
    rms_norm_backward(dx, mode, dweight, mode, c.dy, c.x, c.rstd, c.weight, {kEpsilon}, stream);
    Values of_x = finite_differences(c.x, values_of(c.dy), 1e-2, forward);
    Values of_weight = finite_differences(c.weight, values_of(c.dy), 1e-1, forward);
    const double times = mode == GradientMode::kAccumulate ? 2 : 1;
    for (double& value : of_x) value *= times;
    for (double& value : of_weight) value *= times;
    expect_close(dx, of_x, 1e-3, "dx");
    expect_close(dweight, of_weight, 1e-4, "dweight");
  }
}

TEST(RmsNorm, OnePlusEqualsGainsRaisedByOne) {
  const Stream stream = cpu_stream();
  const RmsCase c(5, 13, DType::kF32, stream);
  const Tensor higher = clone(c.weight, stream), y = clone(c.y, stream);
  for (std::int64_t i = 0; i < 13; ++i) higher.data<float>()[i] += 1;
  rms_norm_forward(c.y, c.rstd, c.x, higher, {kEpsilon}, stream);
  rms_norm_forward(y, Tensor(), c.x, c.weight, {kEpsilon, true}, stream);
  expect_close(y, values_of(c.y), 1e-6);
  const Tensor dx = clone(c.x, stream), dweight = clone(c.weight, stream);
  const Tensor dx_plus = clone(c.x, stream), dweight_plus = clone(c.weight, stream);
  constexpr GradientMode kNew = GradientMode::kOverwrite;
  rms_norm_backward(dx, kNew, dweight, kNew, c.dy, c.x, c.rstd, higher, {kEpsilon}, stream);
  rms_norm_backward(dx_plus, kNew, dweight_plus, kNew, c.dy, c.x, c.rstd, c.weight,
                    {kEpsilon, true}, stream);
  expect_close(dx_plus, values_of(dx), 1e-6);
  expect_close(dweight_plus, values_of(dweight), 1e-6);
}

TEST(RmsNorm, PerHeadEqualsPerRow) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({2, 3, 4 * 5 + 1}, dtype, 1, stream), before = clone(x, stream);
    const Tensor dx = random_tensor(x.shape(), dtype, 2, stream), dbefore = clone(dx, stream);
    const Tensor weight = random_tensor({5}, DType::kF32, 3, stream);
    const Tensor dweight = clone(weight, stream), wanted_dweight = clone(weight, stream);
    rms_norm_heads_forward(x, {1, 2}, weight, {kEpsilon, true}, stream);
    rms_norm_heads_backward(dx, dweight, GradientMode::kOverwrite, before, {1, 2}, weight,
                            {kEpsilon, true}, stream);
    Values rows, drows, wanted = values_of(before), dwanted = values_of(dbefore);
    for (std::size_t row = 0; row < 6; ++row) {
      for (std::size_t i = 5; i < 15; ++i) {
        rows.push_back(wanted[row * 21 + i]);
        drows.push_back(dwanted[row * 21 + i]);
      }
    }
    const Tensor alone = tensor_of(rows, {12, 5}, dtype, stream), y = clone(alone, stream);
    const Tensor dy = tensor_of(drows, {12, 5}, dtype, stream), of_x = clone(dy, stream);
    const Tensor rstd = Tensor::empty({12}, DType::kF32, MemoryKind::kActivations, stream);
    rms_norm_forward(y, rstd, alone, weight, {kEpsilon, true}, stream);
    rms_norm_backward(of_x, GradientMode::kOverwrite, wanted_dweight, GradientMode::kOverwrite, dy,
                      alone, rstd, weight, {kEpsilon, true}, stream);
    for (std::size_t i = 0; i < 60; ++i) {
      wanted[i / 10 * 21 + 5 + i % 10] = values_of(y)[i];
      dwanted[i / 10 * 21 + 5 + i % 10] = values_of(of_x)[i];
    }
    expect_close(x, wanted, 0);
    expect_close(dx, dwanted, 1e-6);
    expect_close(dweight, values_of(wanted_dweight), 1e-5);
    EXPECT_THROW(rms_norm_heads_forward(x, {3, 2}, weight, {kEpsilon}, stream), ShapeMismatch);
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
