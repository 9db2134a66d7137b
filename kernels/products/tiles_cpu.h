#pragma once

// Suppresses a warning about the deliberately undefined registers of the compiler's own header.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "hybrid_trainer/core/dtype.h"

/// Matrix tiles of the CPU (AMX): eight registers of 16 x 64 bytes, and an instruction that adds a
/// product of bf16 pairs to a tile of f32 sums. Requires multiplies_tiles(). Source: Intel
/// Architecture Instruction Set Extensions Programming Reference, chapter 3. A tile of A is 16 rows
/// of 32 elements along k. A tile of B is 16 rows; each row has two adjacent elements along k for
/// 16 columns: (b[2p][j], b[2p + 1][j]). A panel is 32 rows of A or 32 columns of B, which are two
/// adjacent tiles, over any k. In a packed panel, the tiles are consecutive.

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace hybrid_trainer::kernels::cpu {

inline constexpr std::int64_t kTileRows = 16, kTileDepth = 32, kPanel = 32;
inline constexpr std::int64_t kTileElements = kTileRows * kTileDepth;

/// Configures the tile registers of the calling thread; the destructor releases them.
class TileRegisters {
 public:
  TileRegisters() {
    struct alignas(64) Shape {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    const Shape shape;
    asm volatile("ldtilecfg %0" ::"m"(shape));
  }
  ~TileRegisters() { asm volatile("tilerelease"); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

// The "memory" clobber keeps the compiler from moving earlier writes past the load.
template <int kTile>
inline void load_tile(const void* rows, std::int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
inline void store_tile(void* rows, std::int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
inline void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <int kC, int kA, int kB>
inline void multiply_tile() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

/// 32 rows of A, packed or in place.
struct RowPanel {
  const BFloat16* upper;   // first tile of rows 0 to 15
  const BFloat16* lower;   // first tile of rows 16 to 31
  std::int64_t row_bytes;  // bytes between adjacent rows of a tile
  std::int64_t step;       // elements between adjacent tiles along k
  static RowPanel packed(const BFloat16* panel) {
    return {panel, panel + kTileElements, 2 * kTileDepth, 2 * kTileElements};
  }
  static RowPanel in_place(const BFloat16* rows, std::int64_t stride) {
    return {rows, rows + kTileRows * stride, 2 * stride, kTileDepth};
  }
};

enum class Sum { kNew, kAdded };

/// c (32 x 32, f32) = or += panel · column panel over `depth`, a multiple of 32. Also prefetches
/// 4·depth/32 lines from `ahead` on.
template <Sum kSum>
inline void multiply_panels(float* c, std::int64_t c_stride, const RowPanel& a, const BFloat16* b,
                            std::int64_t depth, const void* ahead) {
  const std::int64_t bytes = 4 * c_stride;
  float* const below = c + kTileRows * c_stride;
  if constexpr (kSum == Sum::kAdded) {
    load_tile<0>(c, bytes);
    load_tile<1>(c + 16, bytes);
    load_tile<2>(below, bytes);
    load_tile<3>(below + 16, bytes);
  } else {
    clear_tile<0>();
    clear_tile<1>();
    clear_tile<2>();
    clear_tile<3>();
  }
  const char* next = static_cast<const char*>(ahead);
  for (std::int64_t t = 0; t < depth / kTileDepth; ++t, next += 256) {
    const BFloat16* const column = b + t * 2 * kTileElements;
    load_tile<4>(a.upper + t * a.step, a.row_bytes);
    load_tile<6>(column, 64);
    _mm_prefetch(next, _MM_HINT_T1);
    load_tile<7>(column + kTileElements, 64);
    _mm_prefetch(next + 64, _MM_HINT_T1);
    multiply_tile<0, 4, 6>();
    load_tile<5>(a.lower + t * a.step, a.row_bytes);
    multiply_tile<1, 4, 7>();
    _mm_prefetch(next + 128, _MM_HINT_T1);
    multiply_tile<2, 5, 6>();
    _mm_prefetch(next + 192, _MM_HINT_T1);
    multiply_tile<3, 5, 7>();
  }
  store_tile<0>(c, bytes);
  store_tile<1>(c + 16, bytes);
  store_tile<2>(below, bytes);
  store_tile<3>(below + 16, bytes);
}

inline void transpose_words(__m512i* rows) {
  __m512i t[16];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xDD);
    t[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xDD);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
    rows[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    rows[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xDD);
  }
}

/// Rows 2p and 2p + 1 of 32 columns, interleaved as pairs: `left` has columns 0-15, `right` 16-31.
struct Pairs {
  __m512i left, right;
};
inline Pairs pairs_of(const BFloat16* even, const BFloat16* odd) {
  const __m512i x = _mm512_loadu_si512(even), y = _mm512_loadu_si512(odd);
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,
                                       39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  return {_mm512_permutex2var_epi16(x, low, y), _mm512_permutex2var_epi16(x, high, y)};
}

/// Packs 32·panels columns of B (depth, …); `to` receives consecutive panels.
inline void pack_columns(BFloat16* to, const BFloat16* b, std::int64_t stride, std::int64_t panels,
                         std::int64_t depth) {
  for (std::int64_t p = 0; p < depth; p += 2) {
    const BFloat16* const row = b + p * stride;
    BFloat16* const tile = to + p / kTileDepth * 2 * kTileElements + p % kTileDepth * kTileRows;
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const Pairs pairs = pairs_of(row + panel * kPanel, row + stride + panel * kPanel);
      BFloat16* const at = tile + panel * kPanel * depth;
      _mm512_storeu_si512(at, pairs.left);
      _mm512_storeu_si512(at + kTileElements, pairs.right);
    }
  }
}

/// Packs 32·panels columns of B stored as rows (…, depth), as weights are.
inline void pack_columns_of_transposed(BFloat16* to, const BFloat16* b, std::int64_t stride,
                                       std::int64_t panels, std::int64_t depth) {
  for (std::int64_t half = 0; half < 2 * panels; ++half) {
    const BFloat16* const rows = b + half * kTileRows * stride;
    BFloat16* const panel = to + half / 2 * kPanel * depth + half % 2 * kTileElements;
    for (std::int64_t p = 0; p < depth; p += kTileDepth) {
      __m512i words[16];
      for (int i = 0; i < 16; ++i) words[i] = _mm512_loadu_si512(rows + i * stride + p);
      transpose_words(words);
      BFloat16* const tile = panel + p / kTileDepth * 2 * kTileElements;
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(tile + i * kTileDepth, words[i]);
    }
  }
}

/// Packs 32·panels rows of A stored as columns (depth, …).
inline void pack_rows_of_transposed(BFloat16* to, const BFloat16* a, std::int64_t stride,
                                    std::int64_t panels, std::int64_t depth) {
  for (std::int64_t p = 0; p < depth; p += kTileDepth) {
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      __m512i upper[16], lower[16];
      for (int q = 0; q < 16; ++q) {
        const BFloat16* const row = a + (p + 2 * q) * stride + panel * kPanel;
        const Pairs pairs = pairs_of(row, row + stride);
        upper[q] = pairs.left;
        lower[q] = pairs.right;
      }
      transpose_words(upper);
      transpose_words(lower);
      BFloat16* const tile = to + panel * kPanel * depth + p / kTileDepth * 2 * kTileElements;
      for (int i = 0; i < 16; ++i) {
        _mm512_storeu_si512(tile + i * kTileDepth, upper[i]);
        _mm512_storeu_si512(tile + kTileElements + i * kTileDepth, lower[i]);
      }
    }
  }
}

}  // namespace hybrid_trainer::kernels::cpu

#pragma GCC pop_options
