#include "kernels/backend/vector_math.h"

#include <limits>

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

TEST(VectorMath, ExponentialMeetsErrorBound) {
  for (double x = -87.3; x <= 87.3; x += 0.00137) {
    const auto argument = static_cast<float>(x);
    const double wanted = std::exp(static_cast<double>(argument));
    ASSERT_NEAR(static_cast<double>(exponential(argument)) / wanted, 1.0, 2e-7) << x;
  }
  EXPECT_EQ(exponential(0.0f), 1.0f);
}

TEST(VectorMath, ExponentialStaysFiniteAndKeepsNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_GT(exponential(kInfinity), 8e37f);
  EXPECT_LT(exponential(kInfinity), kInfinity);
  EXPECT_GE(exponential(-kInfinity), 0.0f);
  EXPECT_LT(exponential(-kInfinity), 2e-38f);
  EXPECT_EQ(exponential(-1e30f), exponential(-kInfinity));
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(exponential(-std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMath, HyperbolicTangentMeetsErrorBound) {
  for (double x = -20; x <= 20; x += 0.00137) {
    const auto argument = static_cast<float>(x);
    ASSERT_NEAR(static_cast<double>(hyperbolic_tangent(argument)),
                std::tanh(static_cast<double>(argument)), 1.2e-7)
        << x;
  }
  EXPECT_EQ(hyperbolic_tangent(1e30f), 1.0f);
}

TEST(VectorMath, StoreRoundsLikeToBFloat16) {
  for (std::uint32_t bits = 0; bits < 0xFFFF0000u; bits += 0x3FF7u) {
    const float value = std::bit_cast<float>(bits);
    BFloat16 stored;
    store(&stored, value);
    ASSERT_EQ(stored.bits, to_bfloat16(value).bits) << bits;
  }
}

TEST(VectorMath, GeluSlopeEqualsDerivative) {
  const auto gelu = [](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  for (double x = -8; x <= 8; x += 0.013) {
    const double wanted = (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
    EXPECT_NEAR(static_cast<double>(gelu_slope(static_cast<float>(x))), wanted, 1e-6) << x;
    EXPECT_NEAR(static_cast<double>(gelu_gate(static_cast<float>(x))) * x, gelu(x), 1e-6) << x;
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels::cpu
