#pragma once

#include <immintrin.h>

#include "kernels/backend/parallel.h"
#include "kernels/quantized/quantization_table.h"

// Computes codes in registers, because lookups in a table of 256 would take most of the time;
// results are bit-identical. Vectors of eight have one number per decade.

namespace hybrid_trainer::kernels::cpu {

constexpr int kEight = 8;
constexpr int kThirtyTwo = 32;

template <QuantizationMap kMap>
[[gnu::target("arch=x86-64-v3")]] inline void decode_eight(float* x, const std::uint8_t* codes,
                                                           float scale) {
  static constexpr DecadeLines kLines = make_value_lines(kMap);
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  const __m256 sign_bit = _mm256_set1_ps(-0.0f), shift = _mm256_set1_ps(value_shift(kMap));
  __m256 steps, size;
  if constexpr (kMap == QuantizationMap::kSigned) {
    steps = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));  // code 128 is -128
    size = _mm256_andnot_ps(sign_bit, steps);
  } else {
    size = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  }
  const __m256 along = _mm256_add_ps(size, shift);
  const __m256i decade = _mm256_srli_epi32(_mm256_castps_si256(along), 23);
  __m256 value =
      _mm256_fmadd_ps(_mm256_permutevar8x32_ps(_mm256_load_ps(kLines.slopes), decade), along,
                      _mm256_permutevar8x32_ps(_mm256_load_ps(kLines.starts), decade));
  if constexpr (kMap == QuantizationMap::kSigned)
    value = _mm256_xor_ps(value, _mm256_and_ps(sign_bit, steps));
  _mm256_storeu_ps(x, _mm256_mul_ps(value, _mm256_set1_ps(scale)));
}

constexpr int kFixedBits = 15;
constexpr int kNear = 4;  // 2^-13; errors are below 2^-14

/// Arrays indexed by a magnitude's decade, lowest first; index 7 is for magnitudes near 1. `line`
/// maps magnitudes to places · 2^15 + kNear. `ends` has the bits of each decade's last magnitude.
struct PlaceLines {
  DecadeLines line;
  alignas(32) std::int32_t ends[kDecades + 1] = {};
};
constexpr PlaceLines make_place_lines(QuantizationMap map) {
  PlaceLines lines;
  double power = 1;
  const auto set = [&](int i, double slope, double start, double end) {
    const double one = 1 << kFixedBits;
    lines.line.slopes[i] = static_cast<float>(one * slope);
    lines.line.starts[i] = static_cast<float>(one * (start - tree_bits(map, 0)) + kNear);
    lines.ends[i] = std::bit_cast<std::int32_t>(static_cast<float>(end));
  };
  for (int i = kDecades - 1; i >= 0; --i, power /= 10) {
    const double intervals = 1 << (tree_width(map) - kDecades + i);
    const double slope = intervals / (0.9 * power), start = intervals * 8 / 9;
    if (i == kDecades - 1) {  // the interval of 1 begins a quarter of an interval lower
      set(i, slope, start, 1 - 0.45 / intervals);
      set(i + 1, slope, start + 0.25, std::numeric_limits<float>::max());
    } else if (intervals == 1) {  // the lowest decade's only value, 0.55, covers its upper half
      set(i, 1 / (0.725 * power), 1 - 0.275 / 0.725, power);
    } else {
      set(i, slope, start, power);
    }
  }
  return lines;
}

/// Returns the place above 0 of each magnitude, relative to the largest, times 2^15, plus kNear.
template <QuantizationMap kMap>
[[gnu::target("arch=x86-64-v3")]] inline __m256i fixed_places(__m256 magnitude,
                                                              float inverse_reach) {
  static constexpr PlaceLines kLines = make_place_lines(kMap);
  constexpr float kMin = 2.2e-7f;  // below the first bound; treated as the lowest decade
  constexpr float kLog = 0.30103f / (1 << 23), kMagic = 3 << 22;
  const __m256 size =
      _mm256_max_ps(_mm256_mul_ps(magnitude, _mm256_set1_ps(inverse_reach)), _mm256_set1_ps(kMin));
  const __m256i bits = _mm256_castps_si256(size);
  // A float's bits are nearly linear in its logarithm, so the decade is the guess or the next.
  const __m256 guess =
      _mm256_fmadd_ps(_mm256_cvtepi32_ps(bits), _mm256_set1_ps(kLog), _mm256_set1_ps(kMagic - 32));
  const __m256i below = _mm256_castps_si256(guess);
  const __m256i ends = _mm256_permutevar8x32_epi32(
      _mm256_load_si256(reinterpret_cast<const __m256i*>(kLines.ends)), below);
  const __m256i decade = _mm256_sub_epi32(below, _mm256_cmpgt_epi32(bits, ends));
  return _mm256_cvttps_epi32(
      _mm256_fmadd_ps(_mm256_permutevar8x32_ps(_mm256_load_ps(kLines.line.slopes), decade), size,
                      _mm256_permutevar8x32_ps(_mm256_load_ps(kLines.line.starts), decade)));
}

/// Writes 32 codes. Returns true if rounding errors near a bound may have decided one of them.
template <QuantizationMap kMap>
[[gnu::target("arch=x86-64-v3")]] inline bool encode_thirty_two(std::uint8_t* codes, const float* x,
                                                                float inverse_reach) {
  __m256i numbers[4], places[4];
  __m256i least = _mm256_set1_epi32(1 << kFixedBits);
  for (int i = 0; i < 4; ++i) {
    const __m256 value = _mm256_loadu_ps(x + kEight * i);
    numbers[i] = _mm256_castps_si256(value);
    const __m256i at = fixed_places<kMap>(
        kMap == QuantizationMap::kSigned ? _mm256_andnot_ps(_mm256_set1_ps(-0.0f), value) : value,
        inverse_reach);
    const __m256i part = _mm256_and_si256(at, _mm256_set1_epi32((1 << kFixedBits) - 1));
    least = _mm256_min_epi32(least, part);
    places[i] = _mm256_srli_epi32(at, kFixedBits);
  }
  const __m256i signs = _mm256_packs_epi16(_mm256_packs_epi32(numbers[0], numbers[1]),
                                           _mm256_packs_epi32(numbers[2], numbers[3]));
  __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(places[0], places[1]),
                                      _mm256_packs_epi32(places[2], places[3]));
  if constexpr (kMap == QuantizationMap::kSigned) {  // 128 represents 1; there is no -1
    const __m256i negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), signs);
    bytes = _mm256_min_epu8(bytes, _mm256_add_epi8(_mm256_set1_epi8(-128), negative));
    bytes = _mm256_sub_epi8(_mm256_xor_si256(bytes, negative), negative);
  } else {  // positive values stay positive
    bytes = _mm256_and_si256(bytes, _mm256_cmpgt_epi8(signs, _mm256_setzero_si256()));
  }
  const __m256i in_order =
      _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), in_order);
  return _mm256_movemask_epi8(_mm256_cmpgt_epi32(_mm256_set1_epi32(2 * kNear), least)) != 0;
}

template <QuantizationMap kMap>
inline constexpr QuantizationTable kTable = make_quantization_table(kMap);

template <class Body>
void for_quantized_blocks(std::int64_t elements, const Body& body) {
  for_each_row(quantization_blocks(elements), kQuantizationBlock, [=](std::int64_t block) {
    const std::int64_t at = block * kQuantizationBlock;
    const std::int64_t size = std::min(kQuantizationBlock, elements - at);
    body(block, at, static_cast<int>(size));
  });
}

/// Returns the largest magnitude, 0 if this magnitude is subnormal, or NaN if a value is infinite
/// or NaN.
inline float scale_of(const float* x, int n) {
  constexpr float kMin = std::numeric_limits<float>::min();
  constexpr auto kInfinity = std::bit_cast<std::int32_t>(std::numeric_limits<float>::infinity());
  std::int32_t largest = 0;  // compared as bits; a NaN has greater bits than any number
#pragma omp simd reduction(max : largest)
  for (int i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<std::int32_t>(x[i]) & 0x7FFFFFFF);
  if (largest >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  const float scale = std::bit_cast<float>(largest);
  return scale < kMin ? 0.0f : scale;
}

/// Writes the codes of n elements of a block whose scale is a normal number.
template <QuantizationMap kMap>
void encode(std::uint8_t* codes, const float* x, int n, float scale, float inverse) {
  const float* const bounds = kTable<kMap>.bounds;
#pragma omp simd
  for (int i = 0; i < n; ++i) {
    codes[i] =
        static_cast<std::uint8_t>(code_of(kMap, place_of<kMap>(x[i], scale, inverse, bounds)));
  }
}

/// Writes the codes of one block of n <= 256 elements and returns the block's scale. The codes are
/// 0 if the scale is 0 or NaN. `set` must be instruction_set().
template <QuantizationMap kMap>
float encode_block(std::uint8_t* codes, const float* x, int n, InstructionSet set) {
  const float scale = scale_of(x, n);
  if (!(scale > 0)) {
    std::fill_n(codes, n, std::uint8_t{0});
    return scale;
  }
  const float inverse = 1 / scale;
  int i = 0;
  // If the scale is not in this range, the inverse or the smallest bounds are not normal numbers.
  const bool has_normal_bounds = scale >= 1e-31f && scale <= 8e37f;
  if (set != InstructionSet::kBaseline && has_normal_bounds) {
    for (; i + kThirtyTwo <= n; i += kThirtyTwo) {
      if (encode_thirty_two<kMap>(codes + i, x + i, inverse)) [[unlikely]]
        encode<kMap>(codes + i, x + i, kThirtyTwo, scale, inverse);
    }
  }
  encode<kMap>(codes + i, x + i, n - i, scale, inverse);
  return scale;
}

template <QuantizationMap kMap>
void decode_block(float* x, const std::uint8_t* codes, int n, float scale, InstructionSet set) {
  const float* const values = kTable<kMap>.values;
  int i = 0;
  if (set != InstructionSet::kBaseline)
    for (; i + kEight <= n; i += kEight) decode_eight<kMap>(x + i, codes + i, scale);
#pragma omp simd
  for (int k = i; k < n; ++k) x[k] = values[codes[k]] * scale;
}

}  // namespace hybrid_trainer::kernels::cpu
