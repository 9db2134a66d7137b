#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

/// Queries and keys that one block of scores holds. Keys are a multiple of queries, so that the
/// first key of a block that begins at or before a query block is visible to each of its queries.
inline constexpr std::int64_t kQueryBlock = 64;
inline constexpr std::int64_t kKeyBlock = 256;

/// Sizes of self-attention, from qkv (B, T, 3·C).
struct AttentionSizes {
  AttentionSizes(const Tensor& qkv, int head_count)
      : batch(qkv.size(0)),
        length(qkv.size(1)),
        heads(head_count),
        channels(qkv.size(2) / 3),
        head_size(channels / head_count),
        scale(1.0f / std::sqrt(static_cast<float>(head_size))) {}
  /// Where head `item` of [0, batch * heads) begins in (B, T, channels), and in (B, T, 3 channels).
  std::int64_t first_of(std::int64_t item) const { return first(item, channels); }
  std::int64_t first_in_qkv(std::int64_t item) const { return first(item, 3 * channels); }

  std::int64_t batch;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t channels;
  std::int64_t head_size;
  float scale;

 private:
  std::int64_t first(std::int64_t item, std::int64_t stride) const {
    return item / heads * length * stride + item % heads * head_size;
  }
};

/// Rows (T, head_size) of one head in f32: read as HeadRows, accumulated as HeadSums.
template <class Value>
struct RowsOf {
  Value* data;
  std::int64_t stride;
  Value* row(std::int64_t index) const { return data + index * stride; }
};
using HeadRows = RowsOf<const float>;
using HeadSums = RowsOf<float>;

/// The rows in place if they are f32, else their copy in scratch (T, head_size).
inline HeadRows read_head(const float* rows, std::int64_t stride, std::int64_t, std::int64_t,
                          float*) {
  return {rows, stride};
}
inline HeadRows read_head(const BFloat16* rows, std::int64_t stride, std::int64_t length,
                          std::int64_t head_size, float* scratch) {
  for (std::int64_t t = 0; t < length; ++t) {
    const BFloat16* const from = rows + t * stride;
    float* const to = scratch + t * head_size;
#pragma omp simd
    for (std::int64_t i = 0; i < head_size; ++i) to[i] = load(from + i);
  }
  return {scratch, head_size};
}

/// Writes rows kept in scratch back; rows in place need nothing.
inline void write_head(float*, std::int64_t, std::int64_t, std::int64_t, const HeadSums&) {}
inline void write_head(BFloat16* rows, std::int64_t stride, std::int64_t length,
                       std::int64_t head_size, const HeadSums& from) {
  for (std::int64_t t = 0; t < length; ++t) {
    const float* const source = from.row(t);
    BFloat16* const to = rows + t * stride;
#pragma omp simd
    for (std::int64_t i = 0; i < head_size; ++i) store(to + i, source[i]);
  }
}

/// One block of queries against one block of the keys before them.
struct ScoreBlock {
  std::int64_t first_query;
  std::int64_t queries;
  std::int64_t first_key;
  std::int64_t keys;
  /// Number of keys that query `row` of the block sees: its own and those before it.
  std::int64_t visible(std::int64_t row) const {
    return std::min(keys, first_query + row + 1 - first_key);
  }
};

/// scores (queries, keys) = scale · left · rightᵀ over head_size: queries with keys, or output
/// gradients with values.
inline void score(float* scores, const ScoreBlock& block, const HeadRows& left,
                  const HeadRows& right, std::int64_t head_size, float scale) {
  multiply({.transpose_b = Transpose::kYes,
            .m = block.queries,
            .n = block.keys,
            .k = head_size,
            .a = left.row(block.first_query),
            .stride_a = left.stride,
            .b = right.row(block.first_key),
            .stride_b = right.stride,
            .c = scores,
            .stride_c = block.keys,
            .scale = scale});
}

/// rows[first_query...] (+)= weights (queries, keys) · right[first_key...].
inline void gather_from_keys(float* to, std::int64_t stride, const float* weights,
                             const ScoreBlock& block, const HeadRows& right, std::int64_t head_size,
                             bool accumulate) {
  multiply({.m = block.queries,
            .n = head_size,
            .k = block.keys,
            .a = weights,
            .stride_a = block.keys,
            .b = right.row(block.first_key),
            .stride_b = right.stride,
            .c = to,
            .stride_c = stride,
            .accumulate = accumulate});
}

/// rows[first_key...] (+)= weightsᵀ · right[first_query...].
inline void gather_from_queries(const HeadSums& rows, const float* weights, const ScoreBlock& block,
                                const HeadRows& right, std::int64_t head_size, bool accumulate) {
  multiply({.transpose_a = Transpose::kYes,
            .m = block.keys,
            .n = head_size,
            .k = block.queries,
            .a = weights,
            .stride_a = block.keys,
            .b = right.row(block.first_query),
            .stride_b = right.stride,
            .c = rows.row(block.first_key),
            .stride_c = rows.stride,
            .accumulate = accumulate});
}

}  // namespace hybrid_trainer::kernels::cpu
