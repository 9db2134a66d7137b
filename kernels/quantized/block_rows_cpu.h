#pragma once

#include <immintrin.h>

#include "kernels/quantized/block_codes_cpu.h"

// Products of block_linear_cpu.cpp with AVX2, with the same bits as other instruction sets.

#define HT_AVX2 gnu::target("arch=x86-64-v3")

namespace hybrid_trainer::kernels::cpu::avx2 {

/// Chunk contains the first and the last 32 codes of a chunk; Sums contains its lanes' sums.
struct Chunk {
  __m256i first, last;
};
struct Sums {
  __m256 first, last;
};

[[HT_AVX2]] inline __m256i load_32(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

[[HT_AVX2]] inline Chunk nibbles(__m256i both) {
  const __m256i four = _mm256_set1_epi8(15);
  return {_mm256_and_si256(both, four), _mm256_and_si256(_mm256_srli_epi16(both, 4), four)};
}

/// Returns 16 in each byte whose bit is set.
[[HT_AVX2]] inline __m256i sixteens(std::uint32_t bits) {
  const __m256i bytes = _mm256_shuffle_epi8(
      _mm256_set1_epi32(static_cast<int>(bits)),
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bit = _mm256_set1_epi64x(static_cast<std::int64_t>(0x8040201008040201));
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit),
                          _mm256_set1_epi8(16));
}

/// Returns the codes of a pair of blocks, signed if the format is Q8_0, otherwise unsigned.
template <BlockFormat kFormat>
[[HT_AVX2]] inline Chunk pair_codes(const std::uint8_t* first, const std::uint8_t* second) {
  const std::uint8_t *const a = first + codes_at(kFormat), *const b = second + codes_at(kFormat);
  if constexpr (kFormat == BlockFormat::kQ8_0) {
    return {load_32(a), load_32(b)};
  } else {
    const Chunk codes = nibbles(_mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a))),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)), 1));
    if constexpr (kFormat == BlockFormat::kMXFP4) {
      const __m256i table = _mm256_broadcastsi128_si256(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(kMicroCodes)));
      return {_mm256_shuffle_epi8(table, codes.first), _mm256_shuffle_epi8(table, codes.last)};
    } else if constexpr (bits_at(kFormat) >= 0) {
      const auto x = load_bits<std::uint32_t>(first + bits_at(kFormat)),
                 y = load_bits<std::uint32_t>(second + bits_at(kFormat));
      return {_mm256_or_si256(codes.first, sixteens((x & 0xFFFF) | y << 16)),
              _mm256_or_si256(codes.last, sixteens(x >> 16 | (y & 0xFFFF0000)))};
    } else {
      return codes;
    }
  }
}

template <BlockFormat kFormat>
[[HT_AVX2]] inline __m128 pair_scales(const std::uint8_t* first, const std::uint8_t* second) {
  if constexpr (kFormat == BlockFormat::kMXFP4) {
    return _mm_setr_ps(micro_scale(first[0]), 0, micro_scale(second[0]), 0);
  } else if constexpr (has_min(kFormat)) {
    return _mm_cvtph_ps(_mm_insert_epi32(_mm_cvtsi32_si128(load_bits<std::int32_t>(first)),
                                         load_bits<std::int32_t>(second), 1));
  } else {
    return _mm_cvtph_ps(_mm_insert_epi16(_mm_cvtsi32_si128(load_bits<std::uint16_t>(first)),
                                         load_bits<std::uint16_t>(second), 2));
  }
}

[[HT_AVX2]] inline float sum_of_four(__m128 lanes) {
  const __m128 two = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
/// Returns the sum of the minimums, whose lanes alternate with the lanes of the scales.
[[HT_AVX2]] inline float sum_of_mins(__m128 lanes) {
  const __m128 of_blocks = _mm_movehdup_ps(lanes);
  return _mm_cvtss_f32(_mm_add_ss(of_blocks, _mm_movehl_ps(of_blocks, of_blocks)));
}
/// Adds `factor` times the sum of a superblock's minimums, each multiplied by its sum of codes.
[[HT_AVX2]] inline void add_mins(__m128& to, float factor, std::uint64_t mins,
                                 const std::int16_t* sums) {
  const __m128i total =
      _mm_madd_epi16(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(static_cast<std::int64_t>(mins))),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(sums)));
  to = _mm_fmadd_ps(_mm_set1_ps(factor), _mm_cvtepi32_ps(total), to);
}
[[HT_AVX2]] inline float sum_of_lanes(const Sums& sums) {
  const __m256 eight = _mm256_add_ps(sums.first, sums.last);
  return sum_of_four(_mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)));
}

/// Returns a vector of sums of four adjacent products.
template <BlockFormat kFormat>
[[HT_AVX2]] inline __m256i multiply_half(__m256i codes, const RoundedRow& x, std::int64_t at) {
  const __m256i of = load_32(x.codes + at), one = _mm256_set1_epi16(1);
  if constexpr (kFormat == BlockFormat::kQ8_0) {
    return _mm256_madd_epi16(
        _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(of, codes)), one);
  } else {
    const __m256i lanes = _mm256_madd_epi16(_mm256_maddubs_epi16(codes, of), one);
    if constexpr (offset_of(kFormat) == 0) return lanes;
    return _mm256_add_epi32(lanes, load_32(x.offsets + at / 4));
  }
}
template <BlockFormat kFormat>
[[HT_AVX2]] inline Chunk multiply_chunk(const Chunk& codes, const RoundedRow& x,
                                        std::int64_t chunk) {
  return {multiply_half<kFormat>(codes.first, x, chunk * kChunk),
          multiply_half<kFormat>(codes.last, x, chunk * kChunk + 32)};
}

template <BlockFormat kFormat, int kRows>
[[HT_AVX2]] inline void add_pair(Sums (&sums)[kRows], __m128 (&least)[kRows],
                                 const std::uint8_t* blocks, const RoundedRow* x,
                                 std::int64_t pair) {
  const Chunk codes = pair_codes<kFormat>(blocks, blocks + kBytes<kFormat>);
  const __m128 of_pair = pair_scales<kFormat>(blocks, blocks + kBytes<kFormat>);
#pragma GCC unroll 4
  for (int n = 0; n < kRows; ++n) {
    const __m128 scales = _mm_mul_ps(of_pair, _mm_loadu_ps(x[n].scales + 4 * pair));
    const __m128 a = _mm_shuffle_ps(scales, scales, 0), b = _mm_shuffle_ps(scales, scales, 0xAA);
    const __m256 first = _mm256_set_m128(has_halves(kFormat) ? b : a, a),
                 last = _mm256_set_m128(b, has_halves(kFormat) ? a : b);
    const Chunk lanes = multiply_chunk<kFormat>(codes, x[n], pair);
    sums[n].first = _mm256_fmadd_ps(first, _mm256_cvtepi32_ps(lanes.first), sums[n].first);
    sums[n].last = _mm256_fmadd_ps(last, _mm256_cvtepi32_ps(lanes.last), sums[n].last);
    if constexpr (has_min(kFormat)) least[n] = _mm_add_ps(least[n], scales);
  }
}

template <BlockFormat kFormat, int kRows>
[[HT_AVX2]] inline void multiply_pairs(float* results, const std::uint8_t* w, const RoundedRow* x,
                                       std::int64_t inputs) {
  Sums sums[kRows];
  __m128 least[kRows];
  for (int n = 0; n < kRows; ++n) {
    sums[n].first = sums[n].last = _mm256_setzero_ps();
    least[n] = _mm_setzero_ps();
  }
  std::int64_t pair = 0;
  for (; pair < inputs / kChunk; ++pair, w += 2 * kBytes<kFormat>)
    add_pair<kFormat, kRows>(sums, least, w, x, pair);
  if (inputs % kChunk != 0)
    add_pair<kFormat, kRows>(sums, least, LastPair<kFormat>(w).bytes, x, pair);
  for (int n = 0; n < kRows; ++n) {
    results[n] = sum_of_lanes(sums[n]);
    if constexpr (has_min(kFormat)) results[n] += sum_of_mins(least[n]);
  }
}

template <BlockFormat kFormat>
[[HT_AVX2]] inline Chunk fourth_codes(const std::uint8_t* block, int fourth) {
  const std::uint8_t* const from = block + codes_at(kFormat);
  if constexpr (kFormat == BlockFormat::kQ6_K) {
    const int shift = fourth % 2 * 4;
    const __m256i four = _mm256_set1_epi8(15), two = _mm256_set1_epi8(0x30);
    const __m256i a = load_32(from + fourth / 2 * 64), b = load_32(from + fourth / 2 * 64 + 32);
    const __m256i bits = _mm256_srli_epi16(load_32(from + 128 + fourth / 2 * 32), shift);
    return {_mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(a, shift), four),
                            _mm256_and_si256(_mm256_slli_epi16(bits, 4), two)),
            _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b, shift), four),
                            _mm256_and_si256(_mm256_slli_epi16(bits, 2), two))};
  } else {
    const Chunk codes = nibbles(load_32(from + 32 * fourth));
    if constexpr (kFormat == BlockFormat::kQ4_K) return codes;
    const __m256i bits = _mm256_srli_epi16(load_32(block + 16), 2 * fourth),
                  one = _mm256_set1_epi8(1);
    return {_mm256_or_si256(codes.first, _mm256_slli_epi16(_mm256_and_si256(bits, one), 4)),
            _mm256_or_si256(codes.last, _mm256_slli_epi16(
                                            _mm256_and_si256(_mm256_srli_epi16(bits, 1), one), 4))};
  }
}

/// Returns the scale of each lane in a quarter of a superblock.
template <BlockFormat kFormat>
[[HT_AVX2]] inline Chunk fourth_scales(const std::uint8_t* block, std::uint64_t packed,
                                       int fourth) {
  if constexpr (kFormat == BlockFormat::kQ6_K) {
    const auto at = [&](int i) {
      return int{static_cast<std::int8_t>(block[192 + 4 * fourth + i])};
    };
    return {_mm256_setr_epi32(at(0), at(0), at(0), at(0), at(1), at(1), at(1), at(1)),
            _mm256_setr_epi32(at(2), at(2), at(2), at(2), at(3), at(3), at(3), at(3))};
  } else {
    const auto two = packed >> (16 * fourth);
    return {_mm256_set1_epi32(static_cast<int>(two & 255)),
            _mm256_set1_epi32(static_cast<int>(two >> 8 & 255))};
  }
}

template <BlockFormat kFormat, int kRows>
[[HT_AVX2]] inline void multiply_supers(float* results, const std::uint8_t* w, const RoundedRow* x,
                                        std::int64_t inputs) {
  constexpr bool kHasMin = has_min(kFormat);
  Sums sums[kRows];
  __m128 least[kRows];
  for (int n = 0; n < kRows; ++n) {
    sums[n].first = sums[n].last = _mm256_setzero_ps();
    least[n] = _mm_setzero_ps();
  }
  for (std::int64_t block = 0; block < inputs / 256; ++block, w += kBytes<kFormat>) {
    const SuperScales packed = kHasMin ? super_scales(w) : SuperScales{};
    Chunk totals[kRows];
    for (int n = 0; n < kRows; ++n) totals[n].first = totals[n].last = _mm256_setzero_si256();
    for (int fourth = 0; fourth < 4; ++fourth) {
      const Chunk codes = fourth_codes<kFormat>(w, fourth),
                  scales = fourth_scales<kFormat>(w, packed.scales, fourth);
#pragma GCC unroll 4
      for (int n = 0; n < kRows; ++n) {
        const Chunk lanes = multiply_chunk<kFormat>(codes, x[n], 4 * block + fourth);
        totals[n].first =
            _mm256_add_epi32(totals[n].first, _mm256_mullo_epi32(lanes.first, scales.first));
        totals[n].last =
            _mm256_add_epi32(totals[n].last, _mm256_mullo_epi32(lanes.last, scales.last));
      }
    }
    const float scale = half_at(w + (kHasMin ? 0 : 208)), of_min = half_at(w + 2);
#pragma GCC unroll 4
    for (int n = 0; n < kRows; ++n) {
      const __m256 of_lanes = _mm256_set1_ps(scale * x[n].scales[block]);
      sums[n].first = _mm256_fmadd_ps(of_lanes, _mm256_cvtepi32_ps(totals[n].first), sums[n].first);
      sums[n].last = _mm256_fmadd_ps(of_lanes, _mm256_cvtepi32_ps(totals[n].last), sums[n].last);
      if constexpr (kHasMin)
        add_mins(least[n], of_min * x[n].scales[block], packed.mins, x[n].sums + 8 * block);
    }
  }
  for (int n = 0; n < kRows; ++n) {
    results[n] = sum_of_lanes(sums[n]);
    if constexpr (kHasMin) results[n] -= sum_of_four(least[n]);
  }
}

template <BlockFormat kFormat, int kRows>
[[HT_AVX2]] void multiply_row(float* sums, const std::uint8_t* w, const RoundedRow* x,
                              std::int64_t inputs) {
  if constexpr (is_super(kFormat)) {
    multiply_supers<kFormat, kRows>(sums, w, x, inputs);
  } else {
    multiply_pairs<kFormat, kRows>(sums, w, x, inputs);
  }
}

}  // namespace hybrid_trainer::kernels::cpu::avx2

#undef HT_AVX2

// Products of block_linear_cpu.cpp with AVX-512 VNNI, with the same bits.

#define HT_VNNI gnu::target("arch=x86-64-v4,avx512vnni")

namespace hybrid_trainer::kernels::cpu::vnni {

using avx2::add_mins, avx2::pair_scales, avx2::sum_of_four, avx2::sum_of_mins;

[[HT_VNNI]] inline __m256i concatenate_halves(const std::uint8_t* first,
                                              const std::uint8_t* second) {
  return _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first))),
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(second)), 1);
}

[[HT_VNNI]] inline __m512i nibbles(__m256i both) {
  const __m512i apart =
      _mm512_inserti64x4(_mm512_castsi256_si512(both), _mm256_srli_epi16(both, 4), 1);
  return _mm512_and_si512(apart, _mm512_set1_epi8(15));
}

template <BlockFormat kFormat>
[[HT_VNNI]] inline __m512i pair_codes(const std::uint8_t* first, const std::uint8_t* second) {
  const std::uint8_t *const a = first + codes_at(kFormat), *const b = second + codes_at(kFormat);
  if constexpr (kFormat == BlockFormat::kQ8_0) {
    const __m512i both = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(a))),
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)), 1);
    return _mm512_xor_si512(both, _mm512_set1_epi8(-128));
  } else {
    const __m512i codes = nibbles(concatenate_halves(a, b));
    if constexpr (kFormat == BlockFormat::kMXFP4) {
      const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kMicroCodes));
      return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), codes);
    } else if constexpr (bits_at(kFormat) >= 0) {
      const std::uint64_t x = load_bits<std::uint32_t>(first + bits_at(kFormat)),
                          y = load_bits<std::uint32_t>(second + bits_at(kFormat));
      const std::uint64_t lower = (x & 0xFFFF) | (y & 0xFFFF) << 16,
                          upper = x >> 16 | y >> 16 << 16;
      return _mm512_or_si512(codes, _mm512_maskz_set1_epi8(lower | upper << 32, 16));
    } else {
      return codes;
    }
  }
}

[[HT_VNNI]] inline float sum_of_lanes(__m512 lanes) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
  return sum_of_four(_mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)));
}

template <BlockFormat kFormat>
[[HT_VNNI]] inline __m512i multiply_chunk(__m512i codes, const RoundedRow& x, std::int64_t chunk) {
  const __m512i lanes = offset_of(kFormat) == 0
                            ? _mm512_setzero_si512()
                            : _mm512_loadu_si512(x.offsets + chunk * kLanesOfChunk);
  return _mm512_dpbusd_epi32(lanes, codes, _mm512_loadu_si512(x.codes + chunk * kChunk));
}

template <BlockFormat kFormat, int kRows>
[[HT_VNNI]] inline void add_pair(__m512 (&sums)[kRows], __m128 (&least)[kRows],
                                 const std::uint8_t* blocks, const RoundedRow* x,
                                 std::int64_t pair) {
  const __m512i codes = pair_codes<kFormat>(blocks, blocks + kBytes<kFormat>);
  const __m128 of_pair = pair_scales<kFormat>(blocks, blocks + kBytes<kFormat>);
  const __m512i block_of_lane =
      has_halves(kFormat) ? _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 2)
                          : _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
#pragma GCC unroll 4
  for (int n = 0; n < kRows; ++n) {
    const __m128 scales = _mm_mul_ps(of_pair, _mm_loadu_ps(x[n].scales + 4 * pair));
    const __m512 of_lanes = _mm512_permutexvar_ps(block_of_lane, _mm512_castps128_ps512(scales));
    const __m512i lanes = multiply_chunk<kFormat>(codes, x[n], pair);
    sums[n] = _mm512_fmadd_ps(of_lanes, _mm512_cvtepi32_ps(lanes), sums[n]);
    if constexpr (has_min(kFormat)) least[n] = _mm_add_ps(least[n], scales);
  }
}

template <BlockFormat kFormat, int kRows>
[[HT_VNNI]] inline void multiply_pairs(float* results, const std::uint8_t* w, const RoundedRow* x,
                                       std::int64_t inputs) {
  __m512 sums[kRows];
  __m128 least[kRows];
  for (int n = 0; n < kRows; ++n) sums[n] = _mm512_setzero_ps(), least[n] = _mm_setzero_ps();
  std::int64_t pair = 0;
  for (; pair < inputs / kChunk; ++pair, w += 2 * kBytes<kFormat>)
    add_pair<kFormat, kRows>(sums, least, w, x, pair);
  if (inputs % kChunk != 0)
    add_pair<kFormat, kRows>(sums, least, LastPair<kFormat>(w).bytes, x, pair);
  for (int n = 0; n < kRows; ++n) {
    results[n] = sum_of_lanes(sums[n]);
    if constexpr (has_min(kFormat)) results[n] += sum_of_mins(least[n]);
  }
}

template <BlockFormat kFormat>
[[HT_VNNI]] inline __m512i fourth_codes(const std::uint8_t* block, int fourth) {
  const std::uint8_t* const from = block + codes_at(kFormat);
  if constexpr (kFormat == BlockFormat::kQ6_K) {
    const __m512i both = _mm512_loadu_si512(from + fourth / 2 * 64);
    const __m512i four =
        _mm512_and_si512(fourth % 2 == 0 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
    const __m256i bits =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 128 + fourth / 2 * 32));
    const int shift = fourth % 2 * 4;
    const __m512i two = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_slli_epi16(_mm256_srli_epi16(bits, shift), 4)),
        _mm256_slli_epi16(_mm256_srli_epi16(bits, shift + 2), 4), 1);
    return _mm512_or_si512(four, _mm512_and_si512(two, _mm512_set1_epi8(0x30)));
  } else {
    const __m512i codes =
        nibbles(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32 * fourth)));
    if constexpr (kFormat == BlockFormat::kQ4_K) return codes;
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 16));
    const __m512i one =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_srli_epi16(bits, 2 * fourth)),
                           _mm256_srli_epi16(bits, 2 * fourth + 1), 1);
    return _mm512_or_si512(codes, _mm512_slli_epi16(_mm512_and_si512(one, _mm512_set1_epi8(1)), 4));
  }
}

/// Returns the scale of each lane in a quarter of a superblock.
template <BlockFormat kFormat>
[[HT_VNNI]] inline __m512i fourth_scales(__m512i of_block, int fourth) {
  const __m512i lanes = kFormat == BlockFormat::kQ6_K
                            ? _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)
                            : _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const int step = kFormat == BlockFormat::kQ6_K ? 4 : 2;
  return _mm512_permutexvar_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(step * fourth)),
                                  of_block);
}

template <BlockFormat kFormat, int kRows>
[[HT_VNNI]] inline void multiply_supers(float* results, const std::uint8_t* w, const RoundedRow* x,
                                        std::int64_t inputs) {
  constexpr bool kHasMin = has_min(kFormat);
  __m512 sums[kRows];
  __m128 least[kRows];
  for (int n = 0; n < kRows; ++n) sums[n] = _mm512_setzero_ps(), least[n] = _mm_setzero_ps();
  for (std::int64_t block = 0; block < inputs / 256; ++block, w += kBytes<kFormat>) {
    const SuperScales packed = kHasMin ? super_scales(w) : SuperScales{};
    const __m512i scales =
        kHasMin ? _mm512_castsi256_si512(_mm256_cvtepu8_epi32(
                      _mm_cvtsi64_si128(static_cast<std::int64_t>(packed.scales))))
                : _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 192)));
    __m512i totals[kRows];
    for (int n = 0; n < kRows; ++n) totals[n] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int fourth = 0; fourth < 4; ++fourth) {
      const __m512i codes = fourth_codes<kFormat>(w, fourth),
                    of_lanes = fourth_scales<kFormat>(scales, fourth);
#pragma GCC unroll 4
      for (int n = 0; n < kRows; ++n) {
        const __m512i lanes = multiply_chunk<kFormat>(codes, x[n], 4 * block + fourth);
        totals[n] = _mm512_add_epi32(totals[n], _mm512_mullo_epi32(lanes, of_lanes));
      }
    }
    const float scale = half_at(w + (kHasMin ? 0 : 208)), of_min = half_at(w + 2);
#pragma GCC unroll 4
    for (int n = 0; n < kRows; ++n) {
      sums[n] = _mm512_fmadd_ps(_mm512_set1_ps(scale * x[n].scales[block]),
                                _mm512_cvtepi32_ps(totals[n]), sums[n]);
      if constexpr (kHasMin)
        add_mins(least[n], of_min * x[n].scales[block], packed.mins, x[n].sums + 8 * block);
    }
  }
  for (int n = 0; n < kRows; ++n) {
    results[n] = sum_of_lanes(sums[n]);
    if constexpr (kHasMin) results[n] -= sum_of_four(least[n]);
  }
}

template <BlockFormat kFormat, int kRows>
[[HT_VNNI]] void multiply_row(float* sums, const std::uint8_t* w, const RoundedRow* x,
                              std::int64_t inputs) {
  if constexpr (is_super(kFormat)) {
    multiply_supers<kFormat, kRows>(sums, w, x, inputs);
  } else {
    multiply_pairs<kFormat, kRows>(sums, w, x, inputs);
  }
}

}  // namespace hybrid_trainer::kernels::cpu::vnni

#undef HT_VNNI
