#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "kernels/backend/half_float.h"

namespace hybrid_trainer::kernels {

/// 8-bit floating point: sign, exponent bits (E) and fraction bits (M).
enum class Float8 {
  kE4M3,  // to 448, in steps of 1/8 of the power of two below; no infinity
  kE5M2,  // up to 57,344, in steps of 1/4 of the power of two below
};
constexpr float largest_of(Float8 format) { return format == Float8::kE4M3 ? 448.0f : 57344.0f; }

/// largest = the largest |x[i]|, at least `most` if defined; not finite if an element is not.
void largest_magnitude(const Tensor& largest, const Tensor& most, const Tensor& x,
                       const Stream& stream);

/// to = the nearest s·v, ties to even, with v a number of the format and s the smallest power of
/// two with which largest_of(format) reaches `expected`, or `largest` if `expected` is 0.
/// Saturates; preserves NaN and infinity. expected, largest: (1) f32. to, from: f32 or bf16; may
/// alias.
void round_to_float8(const Tensor& to, const Tensor& from, Float8 format, const Tensor& expected,
                     const Tensor& largest, const Stream& stream);

/// to = the nearest IEEE half-precision number; infinity beyond 65,504. See round_to_float8.
void round_to_half(const Tensor& to, const Tensor& from, const Stream& stream);

// Functions are constexpr, so that device code may call them.

/// Returns the smallest power of two by which a format with numbers up to 1.75·2^largest_exponent
/// must be scaled to reach `largest`, limited to [2^-100, 2^100]. Returns 1 if `largest` is 0.
constexpr float power_of_two_scale(float largest, int largest_exponent) {
  const std::uint32_t bits = magnitude_bits(largest);
  const auto exponent = static_cast<int>(bits >> 23) - largest_exponent +
                        ((bits & 0x007FFFFFu) > 0x00600000u ? 1 : 0);
  const int biased = bits == 0 ? 127 : exponent < 27 ? 27 : exponent > 227 ? 227 : exponent;
  return std::bit_cast<float>(static_cast<std::uint32_t>(biased) << 23);
}

template <Float8 kFormat>
constexpr float float8_scale(float largest) {
  return power_of_two_scale(largest, kFormat == Float8::kE4M3 ? 8 : 15);
}

/// Returns the nearest number scale·v, with v a number of the format. `inverse` must be 1 / scale.
template <Float8 kFormat>
constexpr float nearest_float8(float x, float scale, float inverse) {
  constexpr float kLargest = largest_of(kFormat);
  const float scaled = x * inverse;
  const float low = scaled < kLargest ? scaled : kLargest;
  const float held = low > -kLargest ? low : -kLargest;
  const float rounded =
      kFormat == Float8::kE4M3 ? round_fraction<3, -6>(held) : round_fraction<2, -14>(held);
  return magnitude_bits(x) < kInfinityBits ? rounded * scale : x;
}

}  // namespace hybrid_trainer::kernels
