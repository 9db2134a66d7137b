#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

// MXFP4: 4-bit floating point (a sign, two bits of exponent, one of fraction) in blocks of 32 with one
// power of two, 0.531 bytes a number. Source: Open Compute Project 2023, "OCP Microscaling Formats (MX)
// Specification", version 1.0.

constexpr std::int64_t kMicroScalingBlock = 32;
/// The largest exponent with which no number is infinite.
constexpr std::uint8_t kMostMicroScalingExponent = 252;
/// 2^(exponent − 127); 255 stands for NaN.
constexpr float micro_scaling_factor(std::uint8_t exponent) {
  const std::uint32_t bits = exponent == 0     ? 0x00400000u
                             : exponent == 255 ? 0x7FC00000u
                                               : std::uint32_t{exponent} << 23;
  return std::bit_cast<float>(bits);
}
constexpr std::array<float, 16> kMicroScalingValues{0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                    4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                    -2.0f, -3.0f, -4.0f, -6.0f};

/// Of a matrix whose columns are a multiple of kMicroScalingBlock.
struct MicroScalingTensors {
  Tensor codes;      // u8 (rows, columns / 2), two numbers each, the first one in the lower half
  Tensor exponents;  // u8 (rows, columns / 32)
  /// Without values.
  static MicroScalingTensors empty(std::int64_t rows, std::int64_t columns, const Stream& stream);
};

/// values (rows, columns), f32 or bf16 = value of the code · 2^(exponent − 127). Exact, unless beneath
/// 2^-126.
void dequantize_micro_scaling(const Tensor& values, const MicroScalingTensors& from,
                              const Stream& stream);

}  // namespace hybrid_trainer::kernels
