#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace hybrid_trainer::kernels {

/// The bits of an IEEE half-precision number: round to nearest, ties to even; beyond 65,504 infinity;
/// a NaN stays a NaN.
inline std::uint16_t to_half_bits(float value) {
  const auto sign = static_cast<std::uint32_t>(std::bit_cast<std::uint32_t>(value) >> 16 & 0x8000u);
  const float size = std::fabs(value);
  if (size != size) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (size >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (size < 0x1p-14f)  // subnormal: a multiple of 2^-24
    return static_cast<std::uint16_t>(sign |
                                      static_cast<std::uint32_t>(std::nearbyint(size * 0x1p24f)));
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(size);
  const std::uint32_t rounded = bits + 0xFFFu + (bits >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | (rounded - (112u << 23)) >> 13);
}

/// Exact. Marked constexpr, so that device code may call it.
constexpr float from_half_bits(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1Fu,
                      fraction = half & 0x3FFu;
  if (exponent == 0) {
    const float size = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -size : size;
  }
  const std::uint32_t biased = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | biased << 23 | fraction << 13);
}

}  // namespace hybrid_trainer::kernels
