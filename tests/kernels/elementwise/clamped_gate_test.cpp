#include "hybrid_trainer/kernels/elementwise.h"

#include <algorithm>

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr std::int64_t kRows = 3, kColumns = 21;

TEST(ClampedGate, MatchesReference) {
  const Stream stream = cpu_stream();
  const ClampedGate gate{.limit = 2, .sharpness = 1.5f};
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({kRows, 2 * kColumns}, dtype, 1, stream, 3);
    const Tensor y = Tensor::empty({kRows, kColumns}, dtype, MemoryKind::kActivations, stream);
    clamped_gate_forward(y, x, gate, stream);
    const Values in = values_of(x);
    Values wanted;
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t i = 0; i < kColumns; ++i) {
        const double g = std::min(in[row * 2 * kColumns + i], 2.0),
                     u = std::clamp(in[row * 2 * kColumns + kColumns + i], -2.0, 2.0);
        wanted.push_back((u + 1) * g / (1 + std::exp(-1.5 * g)));
      }
    }
    expect_close(y, wanted, tolerance_of(dtype));
  }
}

TEST(ClampedGate, GradientMatchesFiniteDifferencesAlsoInPlace) {
  const Stream stream = cpu_stream();
  const ClampedGate gate{.limit = 1};
  const Tensor x = random_tensor({4, 14}, DType::kF32, 1, stream, 2),
               dy = random_tensor({4, 7}, DType::kF32, 2, stream);
  const Tensor y = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
  const Values wanted = finite_differences(x, values_of(dy), 1e-3, [&] {
    clamped_gate_forward(y, x, gate, stream);
    return values_of(y);
  });
  const Tensor apart = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  clamped_gate_backward(apart, dy, x, gate, stream);
  expect_close(apart, wanted, 2e-3);
  EXPECT_GT(std::ranges::count(values_of(apart), 0.0), 8) << "the gradients of clamped values";
  clamped_gate_backward(x, dy, x, gate, stream);
  expect_same_bits(x, apart);
}

TEST(ClampedGate, PropagatesNaN) {
  const Stream stream = cpu_stream();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = tensor_of({nan, 1, 1, nan}, {1, 4}, DType::kF32, stream);
  const Tensor y = Tensor::empty({1, 2}, DType::kF32, MemoryKind::kActivations, stream);
  clamped_gate_forward(y, x, {}, stream);
  for (const double value : values_of(y)) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace hybrid_trainer::kernels
