#pragma once

#include <bit>
#include <cstdint>

namespace hybrid_trainer::kernels {

// Functions are constexpr, so that device code may call them.

constexpr std::uint32_t magnitude_bits(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu;
}
inline constexpr std::uint32_t kInfinityBits = 0x7F800000u;

/// Rounds x, |x| < 2^100, to kFractionBits fraction bits and to a multiple of 2^(kMinExponent −
/// kFractionBits); ties to even.
template <int kFractionBits, int kMinExponent>
constexpr float round_fraction(float x) {
  constexpr auto kMin = static_cast<std::uint32_t>(kMinExponent + 127) << 23;
  const std::uint32_t exponent = magnitude_bits(x) & kInfinityBits;
  const std::uint32_t at_least = exponent < kMin ? kMin : exponent;
  // 1.5·2^(e + 23 − bits), whose last bit is the lowest kept bit of x
  const float shift = std::bit_cast<float>(
      (at_least + (static_cast<std::uint32_t>(23 - kFractionBits) << 23)) | 0x00400000u);
  return (x + shift) - shift;
}

/// Returns the nearest IEEE half-precision number, ties to even. Returns +0 for numbers that round
/// to 0, and infinity for magnitudes that round to more than 65,504. NaN stays NaN.
constexpr float nearest_half(float x) {
  const std::uint32_t size = magnitude_bits(x);
  const bool fits = size < 0x477FF000u;  // 65,520
  const float rounded = round_fraction<10, -14>(fits ? x : 0.0f);
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) & 0x80000000u;
  const float beyond = size > kInfinityBits ? x : std::bit_cast<float>(sign | kInfinityBits);
  return fits ? rounded : beyond;
}

/// Returns the bits of nearest_half(value), except that small negative numbers become −0.
constexpr std::uint16_t to_half_bits(float value) {
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 16 & 0x8000u,
                      bits = magnitude_bits(nearest_half(value));
  if (bits >= kInfinityBits)
    return static_cast<std::uint16_t>(sign | (bits == kInfinityBits ? 0x7C00u : 0x7E00u));
  if (bits < 113u << 23) {  // subnormal: a multiple of 2^-24
    const float size = std::bit_cast<float>(bits) * 0x1p24f;
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(size));
  }
  return static_cast<std::uint16_t>(sign | (bits - (112u << 23)) >> 13);
}

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
