#pragma once

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantized_block_avx2.h"
#include "kernels/quantization_table.h"

namespace hybrid_trainer::kernels::cpu {

template <QuantizationMap kMap>
inline constexpr QuantizationTable kTable = make_quantization_table(kMap);

/// body(block, first element, elements of the block) for all blocks of so many elements.
template <class Body>
void for_quantized_blocks(std::int64_t elements, const Body& body) {
  parallel_rows(quantization_blocks(elements), kQuantizationBlock,
                [=](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t block = begin; block < end; ++block) {
                    const std::int64_t at = block * kQuantizationBlock;
                    const std::int64_t size = std::min(kQuantizationBlock, elements - at);
                    body(block, at, static_cast<int>(size));
                  }
                });
}

/// The largest magnitude of n elements: 0 where it is not a normal number, NaN where it is infinite
/// or an element is NaN.
inline float scale_of(const float* x, int n) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  constexpr auto kInfinity = std::bit_cast<std::int32_t>(std::numeric_limits<float>::infinity());
  std::int32_t largest = 0;  // its bits: those of a NaN are above those of all numbers
#pragma omp simd reduction(max : largest)
  for (int i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<std::int32_t>(x[i]) & 0x7FFFFFFF);
  }
  if (largest >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  const float scale = std::bit_cast<float>(largest);
  return scale < kLeast ? 0.0f : scale;
}

/// The codes of n elements of a block whose scale is a normal number.
template <QuantizationMap kMap>
void encode(std::uint8_t* codes, const float* x, int n, float scale, float inverse) {
  const float* const bounds = kTable<kMap>.bounds;
#pragma omp simd
  for (int i = 0; i < n; ++i) {
    codes[i] =
        static_cast<std::uint8_t>(code_of(kMap, place_of<kMap>(x[i], scale, inverse, bounds)));
  }
}

/// Writes the codes of one block of n <= 256 elements, all 0 where its scale is 0 or NaN; returns
/// the scale. `set`: instruction_set().
template <QuantizationMap kMap>
float encode_block(std::uint8_t* codes, const float* x, int n, InstructionSet set) {
  const float scale = scale_of(x, n);
  if (!(scale > 0)) {
    std::fill_n(codes, n, std::uint8_t{0});
    return scale;
  }
  const float inverse = 1 / scale;
  int i = 0;
  // With others the inverse or the least bounds are not normal numbers.
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
  if (set != InstructionSet::kBaseline) {
    for (; i + kEight <= n; i += kEight) decode_eight<kMap>(x + i, codes + i, scale);
  }
#pragma omp simd
  for (int k = i; k < n; ++k) x[k] = values[codes[k]] * scale;
}

}  // namespace hybrid_trainer::kernels::cpu
