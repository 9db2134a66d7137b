#pragma once

#include <immintrin.h>

#include "kernels/quantization_table.h"

// Sixteen codes at a time by arithmetic, where looks into a table of 256 would take most of the
// time. Results are those of the table, bit for bit.

namespace hybrid_trainer::kernels::cpu {

constexpr int kSixteen = 16;

/// By the exponent of a code's middle (see decode_sixteen), modulo 16, two f32 factors; the products
/// of a number of up to 13 bits with both, of which the first is exact, add up to its quotient by a
/// power of ten, correctly rounded. The last code's makes it 1, that of code 0 makes it 0.
struct DecadeFactors {
  float high[kSixteen] = {};  // of 11 bits
  float low[kSixteen] = {};
  constexpr void set(int exponent, double factor) {
    const auto bits = std::bit_cast<std::uint64_t>(factor) & ~((std::uint64_t{1} << 42) - 1);
    const double part = std::bit_cast<double>(bits);
    high[(127 + exponent) % kSixteen] = static_cast<float>(part);
    low[(127 + exponent) % kSixteen] = static_cast<float>(factor - part);
  }
};
constexpr DecadeFactors make_decade_factors(QuantizationMap map) {
  DecadeFactors factors;
  const int width = tree_width(map);
  double factor = 0.1;
  for (int zeros = 0; zeros < kDecades; ++zeros, factor /= 10) factors.set(width - zeros, factor);
  const double above = 1 + 1.0 / (2 << width);  // the last code's middle over a power of two
  factors.set(width + 1, 1 / (9 * above - 8));
  return factors;
}

constexpr __mmask16 kAllSixteen = 0xFFFF;  // compilers warn of the intrinsics without a mask

/// The values of sixteen codes times the scale.
template <QuantizationMap kMap>
[[gnu::target("arch=x86-64-v4,prefer-vector-width=512")]] inline void decode_sixteen(
    float* x, const std::uint8_t* codes, float scale) {
  static constexpr DecadeFactors kFactors = make_decade_factors(kMap);
  constexpr bool kIsSigned = kMap == QuantizationMap::kSigned;
  constexpr float kMiddle = 2 * tree_bits(kMap, 0) + 1;
  const __m512 sign_bit = _mm512_set1_ps(-0.0f);
  __m512i steps = _mm512_maskz_cvtepu8_epi32(
      kAllSixteen, _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  if (kIsSigned) steps = _mm512_sub_epi32(_mm512_set1_epi32(128), steps);  // negative from 129 on
  const __m512 from = _mm512_maskz_cvtepi32_ps(kAllSixteen, steps);
  // The middle of a code's interval has one bit more; its mantissa is 1 + (value - 0.1)/0.9.
  const __m512 middle = kIsSigned
                            ? _mm512_fnmadd_ps(_mm512_andnot_ps(sign_bit, from), _mm512_set1_ps(2),
                                               _mm512_set1_ps(256 + kMiddle))
                            : _mm512_fmadd_ps(from, _mm512_set1_ps(2), _mm512_set1_ps(kMiddle));
  const __m512 mantissa =
      _mm512_maskz_getmant_ps(kAllSixteen, middle, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
  const __m512 tenfold = _mm512_fmsub_ps(mantissa, _mm512_set1_ps(9), _mm512_set1_ps(8));
  const __m512i decade = _mm512_maskz_srli_epi32(kAllSixteen, _mm512_castps_si512(middle), 23);
  __m512 value = _mm512_fmadd_ps(
      tenfold, _mm512_maskz_permutexvar_ps(kAllSixteen, decade, _mm512_loadu_ps(kFactors.high)),
      _mm512_mul_ps(tenfold, _mm512_maskz_permutexvar_ps(kAllSixteen, decade,
                                                         _mm512_loadu_ps(kFactors.low))));
  if (kIsSigned) value = _mm512_xor_ps(value, _mm512_and_ps(sign_bit, from));
  _mm512_storeu_ps(x, _mm512_mul_ps(value, _mm512_set1_ps(scale)));
}

/// The lines of bits_near, times 2^14.
struct DecadeLines {
  float slopes[kDecades] = {};
  float starts[kDecades] = {};
};
constexpr int kFixedBits = 14;
constexpr DecadeLines make_decade_lines(QuantizationMap map) {
  DecadeLines lines;
  double power = 1 << kFixedBits;
  for (int zeros = 0; zeros < kDecades; ++zeros, power *= 10) {
    const int intervals = 1 << (tree_width(map) - 1 - zeros);
    // A decade of one value, 0.55, leads from its bound, 0.275, at 1.2 to the next decade at 2.
    const bool is_one = intervals == 1;
    lines.slopes[zeros] = static_cast<float>(power * (is_one ? 0.8 / 0.725 : intervals / 0.9));
    lines.starts[zeros] = static_cast<float>(
        (1 << kFixedBits) * (is_one ? 1.2 - 0.275 * 0.8 / 0.725 : intervals * 8.0 / 9.0));
  }
  return lines;
}

/// Writes sixteen codes. True if one is so near a bound that rounding errors may have decided.
template <QuantizationMap kMap>
[[gnu::target("arch=x86-64-v4,prefer-vector-width=512")]] inline bool encode_sixteen(
    std::uint8_t* codes, const float* x, float inverse_reach) {
  static constexpr DecadeLines kLines = make_decade_lines(kMap);
  constexpr bool kIsSigned = kMap == QuantizationMap::kSigned;
  constexpr int kOne = 1 << kFixedBits;
  constexpr int kTop = (1 << tree_width(kMap)) - 1;
  constexpr int kNear = 8;  // 2^-11; errors are below 2^-12
  const __m512 value = _mm512_loadu_ps(x);
  const __m512 size =
      _mm512_mul_ps(kIsSigned ? _mm512_andnot_ps(_mm512_set1_ps(-0.0f), value) : value,
                    _mm512_set1_ps(inverse_reach));
  __m512 place{};
  for (int i = 0; i < kDecades; ++i) {
    const __m512 line =
        _mm512_fmadd_ps(size, _mm512_set1_ps(kLines.slopes[i]), _mm512_set1_ps(kLines.starts[i]));
    place = i == 0 ? line : _mm512_maskz_min_ps(kAllSixteen, place, line);
  }
  __m512i at = _mm512_maskz_cvttps_epi32(kAllSixteen, place);
  // Bounds are halfway between values: at whole numbers, but at 0.2 above them for the first of a
  // decade, and a quarter lower for 1.
  const __m512i bits = _mm512_maskz_srli_epi32(kAllSixteen, at, kFixedBits);
  const __mmask16 first =
      _mm512_testn_epi32_mask(bits, _mm512_sub_epi32(bits, _mm512_set1_epi32(1)));
  at = _mm512_mask_sub_epi32(at, first, at, _mm512_set1_epi32(kOne / 5));
  const __mmask16 top = _mm512_cmpgt_epi32_mask(at, _mm512_set1_epi32(kTop * kOne + kOne / 2));
  at = _mm512_mask_add_epi32(at, top, at, _mm512_set1_epi32(kOne / 4));
  const __mmask16 near = _mm512_testn_epi32_mask(_mm512_add_epi32(at, _mm512_set1_epi32(kNear)),
                                                 _mm512_set1_epi32(kOne - 2 * kNear));
  __m512i steps = _mm512_maskz_srli_epi32(kAllSixteen, at, kFixedBits);
  if (kIsSigned) {
    const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(value));
    const __m512i least = _mm512_maskz_min_epi32(kAllSixteen, steps, _mm512_set1_epi32(kTop));
    steps = _mm512_mask_sub_epi32(steps, negative, _mm512_setzero_si512(), least);
  } else {  // positive values stay positive
    const __mmask16 positive = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_GT_OQ);
    steps = _mm512_sub_epi32(steps, _mm512_set1_epi32(tree_bits(kMap, 0)));
    steps = _mm512_maskz_max_epi32(positive, steps, _mm512_set1_epi32(1));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes),
                   _mm512_maskz_cvtepi32_epi8(kAllSixteen, steps));
  return near != 0;
}

}  // namespace hybrid_trainer::kernels::cpu
