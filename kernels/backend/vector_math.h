#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "hybrid_trainer/core/dtype.h"
#include "src/core/machine.h"

namespace hybrid_trainer::kernels::cpu {

template <class Function>
void with_lanes(const Function& function) {
  switch (instruction_set()) {
    case InstructionSet::kAvx512: return function(std::integral_constant<int, 16>());
    case InstructionSet::kAvx2: return function(std::integral_constant<int, 8>());
    case InstructionSet::kBaseline: return function(std::integral_constant<int, 4>());
  }
}

// Scalar functions that the compiler vectorizes inside a simd loop.

inline float load(const float* x) { return *x; }
inline float load(const BFloat16* x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x->bits) << 16);
}
inline void store(float* y, float value) { *y = value; }
inline void store(BFloat16* y, float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  const std::uint32_t kept = value != value ? (bits | 0x00400000u) : rounded;
  y->bits = static_cast<std::uint16_t>(kept >> 16);
}

/// e^x with a relative error below 2e-7 for |x| <= 87.3; other x are clamped, NaN stays NaN. Splits
/// x = n·ln 2 + r with |r| <= ln 2 / 2 and uses the polynomial of Cephes' expf. Clamps integers,
/// because the compiler would turn float comparisons into branches.
inline float exponential(float x) {
  constexpr std::int32_t kSign = std::numeric_limits<std::int32_t>::min();
  constexpr std::int32_t kInfinity =
      std::bit_cast<std::int32_t>(std::numeric_limits<float>::infinity());
  constexpr float kRound =
      12582912.0f;  // 1.5·2^23: adding it leaves the nearest integer in the low bits
  const std::int32_t bits = std::bit_cast<std::int32_t>(x);
  const std::int32_t magnitude = bits & ~kSign;
  const std::int32_t limited = std::min(magnitude, std::bit_cast<std::int32_t>(87.3f));
  const float limited_x = std::bit_cast<float>(limited | (bits & kSign));
  const float shifted = limited_x * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (limited_x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r * r + r) + 1.0f;
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) + 127u) << 23;
  return magnitude > kInfinity ? x : p * std::bit_cast<float>(power);
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

/// Returns the hyperbolic tangent, accurate to 1.2e-7.
inline float hyperbolic_tangent(float x) {
  const float power = exponential(-2.0f * std::fabs(x));
  return std::copysign((1.0f - power) / (1.0f + power), x);
}

/// e^(-2u), u = √(2/π)·(x + 0.044715·x³); GELU's tanh is computed from it.
inline float gelu_exponential(float x) {
  return exponential(x * (-1.5957691216f - 0.0713548163f * (x * x)));
}

/// GELU(x) / x = (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)).
inline float gelu_gate(float x) { return 1.0f / (1.0f + gelu_exponential(x)); }

/// dGELU/dx = gate + x·gate·(1 − gate)·d(2u)/dx, with 1 − gate = gate·e^(-2u).
inline float gelu_slope(float x) {
  const float power = gelu_exponential(x);
  const float gate = 1.0f / (1.0f + power);
  const float two_u_slope = 1.5957691216f + 0.2140644488f * (x * x);
  return gate + x * gate * (gate * power) * two_u_slope;
}

}  // namespace hybrid_trainer::kernels::cpu
