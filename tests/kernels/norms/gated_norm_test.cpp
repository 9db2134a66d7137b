#include "hybrid_trainer/kernels/normalization.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Rows of C columns, gated by columns [1, 1 + C) of rows of C + 3.
struct GatedCase {
  GatedCase(std::int64_t rows, std::int64_t columns, const GatedNormSpec& wanted, bool shares,
            DType dtype, const Stream& stream)
      : spec(wanted),
        x(random_tensor({rows, columns}, dtype, 1, stream, 2.0)),
        gate(random_tensor({rows, columns + 3}, dtype, 2, stream)),
        weight(random_tensor({shares ? columns / wanted.groups : columns}, DType::kF32, 3, stream)),
        dy(random_tensor({rows, columns}, dtype, 4, stream)),
        y(Tensor::empty_like(x, MemoryKind::kActivations, stream)) {}

  Values wanted() const {
    const Values v = values_of(x), z = values_of(gate), gain = values_of(weight);
    const auto columns = static_cast<std::size_t>(x.size(1)),
               size = columns / static_cast<std::size_t>(spec.groups);
    const auto silu = [&](std::size_t i) {
      const double value = z[i / columns * (columns + 3) + 1 + i % columns];
      return value / (1 + std::exp(-value));
    };
    Values result(v.size());
    for (std::size_t at = 0; at < v.size(); at += size) {
      double squares = 0;
      const auto normed = [&](std::size_t i) { return spec.norm_first ? v[i] : v[i] * silu(i); };
      for (std::size_t i = at; i < at + size; ++i) squares += normed(i) * normed(i);
      const double root =
          std::sqrt(squares / static_cast<double>(size) + static_cast<double>(spec.epsilon));
      for (std::size_t i = at; i < at + size; ++i)
        result[i] =
            normed(i) / root * gain[i % columns % gain.size()] * (spec.norm_first ? silu(i) : 1);
    }
    return result;
  }
  GatedNormSpec spec;
  Tensor x, gate, weight, dy, y;
};

TEST(GatedNorm, ForwardMatchesReference) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const bool norm_first : {false, true}) {
      for (const std::int64_t groups : {1, 3}) {
        for (const bool shares : {false, true}) {
          const GatedCase c(7, 33, {0.5f, groups, norm_first}, shares, dtype, stream);
          gated_norm_forward(c.y, c.x, c.gate, 1, c.weight, c.spec, stream);
          expect_close(c.y, c.wanted(), dtype == DType::kF32 ? 2e-6 : 1e-2,
                       concat(groups, " groups, norm first ", norm_first));
        }
      }
    }
  }
}

TEST(GatedNorm, RoundsNormalizedValueBeforeWeight) {
  const Stream stream = cpu_stream();
  const Tensor x = tensor_of({1, 1.0078125}, {1, 2}, DType::kBF16, stream);
  const Tensor gate = tensor_of({3, 3}, {1, 2}, DType::kBF16, stream);
  const Tensor weight = tensor_of({3, 3}, {2}, DType::kF32, stream);
  const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  const auto rounded = [](double value) {
    return static_cast<double>(to_float(to_bfloat16(static_cast<float>(value))));
  };
  const double silu = 3 / (1 + std::exp(-3.0));
  gated_norm_forward(y, x, gate, 0, weight, {1.0f, 1, true}, stream);
  const double root = std::sqrt((1 + 1.0078125 * 1.0078125) / 2 + 1);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(values_of(y)[i], rounded(3 * rounded(values_of(x)[i] / root) * silu)) << i;
  gated_norm_forward(y, x, gate, 0, weight, {1.0f, 1, false}, stream);
  const double gated = std::sqrt((1 + 1.0078125 * 1.0078125) / 2 * silu * silu + 1);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(values_of(y)[i], rounded(3 * rounded(values_of(x)[i] * silu / gated))) << i;
}

TEST(GatedNorm, BackwardMatchesFiniteDifferences) {
  const Stream stream = cpu_stream();
  for (const bool norm_first : {false, true}) {
    for (const bool shares : {false, true}) {
      SCOPED_TRACE(concat("norm first ", norm_first, ", weights shared ", shares));
      const GatedCase c(5, 12, {0.5f, 2, norm_first}, shares, DType::kF32, stream);
      const auto forward = [&] { return c.wanted(); };
      const Tensor dgate = random_tensor(c.gate.shape(), DType::kF32, 5, stream),
                   dx = clone(c.dy, stream);  // in place of dy
      Values of_gate = finite_differences(c.gate, values_of(c.dy), 1e-3, forward);
      const Values before = values_of(dgate);
      for (std::size_t i = 0; i < of_gate.size(); ++i)
        if (i % 15 == 0 || i % 15 > 12) of_gate[i] = before[i];
      Values of_weight = finite_differences(c.weight, values_of(c.dy), 1e-1, forward);
      const Tensor dweight = clone(c.weight, stream);
      for (std::size_t i = 0; i < of_weight.size(); ++i) of_weight[i] += values_of(dweight)[i];
      gated_norm_backward(dx, dgate, dweight, GradientMode::kAccumulate, dx, c.x, c.gate, 1,
                          c.weight, c.spec, stream);
      expect_close(dx, finite_differences(c.x, values_of(c.dy), 1e-3, forward), 2e-6, "dx");
      expect_close(dgate, of_gate, 2e-6, "dgate");
      expect_close(dweight, of_weight, 2e-6, "dweight");
      gated_norm_backward(dx, dgate, dweight, GradientMode::kOverwrite, c.dy, c.x, c.gate, 1,
                          c.weight, c.spec, stream);
      expect_close(dweight, finite_differences(c.weight, values_of(c.dy), 1e-1, forward), 2e-6);
    }
  }
}

TEST(GatedNorm, Bf16BackwardMatchesF32) {
  const Stream stream = cpu_stream();
  const GatedCase c(9, 40, {1e-5f, 2, false}, false, DType::kBF16, stream);
  const auto wide = [&](const Tensor& x) {
    return tensor_of(values_of(x), x.shape(), DType::kF32, stream);
  };
  const Tensor dx = clone(c.x, stream), dgate = clone(c.gate, stream),
               dweight = clone(c.weight, stream);
  const Tensor x = wide(c.x), gate = wide(c.gate), wide_dx = clone(x, stream),
               wide_dgate = clone(gate, stream), wide_dweight = clone(c.weight, stream);
  gated_norm_backward(dx, dgate, dweight, GradientMode::kOverwrite, c.dy, c.x, c.gate, 1, c.weight,
                      c.spec, stream);
  gated_norm_backward(wide_dx, wide_dgate, wide_dweight, GradientMode::kOverwrite, wide(c.dy), x,
                      gate, 1, c.weight, c.spec, stream);
  expect_close(dx, values_of(wide_dx), 4e-3);
  expect_close(dgate, values_of(wide_dgate), 4e-3);
  expect_close(dweight, values_of(wide_dweight), 1e-6);
}

TEST(GatedNorm, ThrowsOnMismatch) {
  const Stream stream = cpu_stream();
  const GatedCase c(2, 6, {0.5f, 2, false}, false, DType::kF32, stream);
  const auto forward = [&](std::int64_t first, std::int64_t groups, const Tensor& weight) {
    gated_norm_forward(c.y, c.x, c.gate, first, weight, {0.5f, groups, false}, stream);
  };
  EXPECT_NO_THROW(forward(3, 2, c.weight));
  EXPECT_THROW(forward(4, 2, c.weight), ShapeMismatch);
  EXPECT_THROW(forward(0, 4, c.weight), ShapeMismatch);
  EXPECT_THROW(forward(0, 3, random_tensor({3}, DType::kF32, 1, stream)), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
