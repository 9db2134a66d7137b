#pragma once

#include "kernels/attention/attention_cpu.h"
#include "kernels/products/tiles_cpu.h"
#include "src/core/machine.h"

/// Products of panels on matrix tiles or, without them, on vectors of bf16 pairs (AVX-512 BF16).
/// Requires multiplies_bfloat16().

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace hybrid_trainer::kernels::cpu {

/// Configures the calling thread's tile registers, if any; the destructor releases them.
class PanelRegisters {
 public:
  PanelRegisters() {
    if (multiplies_tiles()) registers_.emplace();
  }
  bool are_tiles() const { return registers_.has_value(); }

 private:
  std::optional<TileRegisters> registers_;
};

/// c (8 x 32, f32) = or += the product of 8 rows of a row panel, starting at row `first` of its
/// tiles, and a column panel.
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

/// Implements multiply_panels on the tile registers or on vectors of bf16 pairs.
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

#pragma GCC pop_options

/// Returns whether bf16 products support this attention: bf16, and only whole panels.
bool fits_tiles(const AttentionSizes& sizes, DType dtype);

/// Implement forward_attention and backward_attention on matrix tiles (AMX) or vectors of bf16
/// pairs. Products are bf16 with f32 sums; weights are rounded to bf16. One thread computes a head.
void attention_forward_by_tiles(const Tensor& y, const Tensor& log_sum_exp,
                                const AttentionOperands& from, const AttentionSizes& sizes,
                                const Stream& stream);
void attention_backward_by_tiles(const AttentionOperands& gradients,
                                 const AttentionResults& results, const AttentionOperands& from,
                                 const AttentionSizes& sizes, const Stream& stream);

/// Returns the number of queries or keys after padding with zero rows to whole panels. Only padded
/// queries, whose results are discarded, attend to padded keys.
inline std::int64_t whole_panels(std::int64_t rows) {
  return (rows + kPanel - 1) / kPanel * kPanel;
}
inline std::int64_t padded_queries(const AttentionSizes& sizes) {
  return whole_panels(sizes.length);
}
inline std::int64_t padded_keys(const AttentionSizes& sizes) {
  return whole_panels(sizes.key_length);
}

/// Returns the end of the last key panel that a query, which may be padded, attends to.
inline std::int64_t panel_end(std::int64_t item, std::int64_t query, const AttentionSizes& sizes) {
  const std::int64_t end =
      sizes.bidirectional ? sizes.end_key(item, std::min(query, sizes.length - 1)) : query + 1;
  return whole_panels(end);
}

/// Calls visit(begin, end) for each run of key panels in [from, end) that the query panel attends
/// to, or once for all without a pattern.
template <class Visit>
inline void for_visible_keys(std::int64_t item, std::int64_t query, std::int64_t from,
                             std::int64_t end, const AttentionSizes& sizes, const Visit& visit) {
  while (from < end) {
    const KeyRange keys = sizes.next_keys(item, query, query, from, end, end);
    if (keys.begin < keys.end) visit(keys.begin, keys.end);
    from = keys.end;
  }
}

/// Calls visit(begin, end) for runs of query panels in [from, end) that attend to the panel `key`.
template <class Visit>
inline void for_attending_queries(std::int64_t item, std::int64_t key, std::int64_t from,
                                  std::int64_t end, const AttentionSizes& sizes,
                                  const Visit& visit) {
  if (!sizes.pattern.is_on()) return visit(from, end);
  const auto attends = [&](std::int64_t query) {
    return sizes.pattern.attends(sizes.head_of(item), sizes.block_of(query), sizes.block_of(key));
  };
  for (std::int64_t begin = from; begin < end; begin = from) {
    from = begin + kPanel;
    if (!attends(begin)) continue;
    while (from < end && attends(from)) from += kPanel;
    visit(begin, from);
  }
}

/// Copies `count` rows of `size` numbers contiguously. Adds rows of zeros up to `padded` rows.
inline void copy_head(BFloat16* to, const BFloat16* rows, std::int64_t stride, std::int64_t count,
                      std::int64_t padded, std::int64_t size) {
  for (std::int64_t t = 0; t < count; ++t) std::copy_n(rows + t * stride, size, to + t * size);
  std::fill(to + count * size, to + padded * size, BFloat16{});
}
inline void copy_queries(BFloat16* to, const BFloat16* rows, std::int64_t stride,
                         const AttentionSizes& sizes) {
  copy_head(to, rows, stride, sizes.length, padded_queries(sizes), sizes.head_size);
}
/// Copies rows of keys or values of an item. Writes zeros for masked keys.
inline void copy_keys(BFloat16* to, const BFloat16* rows, std::int64_t item,
                      const AttentionSizes& sizes) {
  copy_head(to, rows, sizes.key_stride, sizes.keys_of(item), padded_keys(sizes), sizes.head_size);
}

}  // namespace hybrid_trainer::kernels::cpu
