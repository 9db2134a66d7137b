#pragma once

#include <optional>

#include "hybrid_trainer/core/processor.h"
#include "kernels/cpu/tiles.h"

/// Products of panels on matrix tiles or, where there are none, by vectors of BF16 pairs (AVX-512
/// BF16). Only where multiplies_bfloat16().

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace hybrid_trainer::kernels::cpu {

/// Holds the tile registers, if there are any, configured for the calling thread.
class PanelRegisters {
 public:
  PanelRegisters() {
    if (multiplies_tiles()) registers_.emplace();
  }
  bool are_tiles() const { return registers_.has_value(); }

 private:
  std::optional<TileRegisters> registers_;
};

/// c (8 x 32, f32) = or += 8 rows of a panel · column panel, from row `first` of its upper or lower
/// tiles on.
template <Sum kSum>
inline void multiply_rows_by_vectors(float* c, std::int64_t c_stride, const BFloat16* rows,
                                     const RowPanel& a, const BFloat16* b, std::int64_t depth) {
  constexpr int kRows = 8, kPairs = kTileDepth / 2;
  __m512 sums[kRows][2];
  for (int i = 0; i < kRows; ++i) {
    for (int half = 0; half < 2; ++half) {
      sums[i][half] =
          kSum == Sum::kAdded ? _mm512_loadu_ps(c + i * c_stride + 16 * half) : _mm512_setzero_ps();
    }
  }
  for (std::int64_t t = 0; t < depth / kTileDepth; ++t) {
    const char* const at = reinterpret_cast<const char*>(rows + t * a.step);
    const BFloat16* const column = b + t * 2 * kTileElements;
    for (int p = 0; p < kPairs; ++p) {
      const auto left = reinterpret_cast<__m512bh>(_mm512_loadu_si512(column + p * kTileDepth));
      const auto right =
          reinterpret_cast<__m512bh>(_mm512_loadu_si512(column + kTileElements + p * kTileDepth));
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        std::int32_t pair;
        __builtin_memcpy(&pair, at + i * a.row_bytes + p * 4, sizeof pair);
        const auto both = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
        sums[i][0] = _mm512_dpbf16_ps(sums[i][0], both, left);
        sums[i][1] = _mm512_dpbf16_ps(sums[i][1], both, right);
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int half = 0; half < 2; ++half)
      _mm512_storeu_ps(c + i * c_stride + 16 * half, sums[i][half]);
  }
}

/// See multiply_panels.
template <Sum kSum>
inline void multiply_on(const PanelRegisters& on, float* c, std::int64_t c_stride,
                        const RowPanel& a, const BFloat16* b, std::int64_t depth,
                        const void* ahead) {
  if (on.are_tiles()) return multiply_panels<kSum>(c, c_stride, a, b, depth, ahead);
  for (int first = 0; first < kPanel; first += 8) {
    const BFloat16* const tile = first < kTileRows ? a.upper : a.lower;
    multiply_rows_by_vectors<kSum>(c + first * c_stride, c_stride,
                                   tile + first % kTileRows * a.row_bytes / 2, a, b, depth);
  }
}

}  // namespace hybrid_trainer::kernels::cpu

#pragma GCC pop_options
