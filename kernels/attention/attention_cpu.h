#pragma once

#include "hybrid_trainer/kernels/attention.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/products/product_cpu.h"

namespace hybrid_trainer::kernels::cpu {

inline constexpr std::int64_t kQueryBlock = 64;
inline constexpr std::int64_t kKeyBlock = 256;

/// Final state of a query's streaming softmax: the logarithm of the sum of e^score, and the factor
/// that turns the sum of e^(score − highest)·value into the output.
struct SoftmaxResult {
  float log_sum_exp, factor;
};

struct KeyRange {
  std::int64_t begin, end;
};

/// Sizes of attention, from rows of queries, and of keys followed by values; in self-attention both
/// are rows of qkv. An item is a query head of a sequence; heads that share keys are adjacent.
struct AttentionSizes {
  AttentionSizes(const Tensor& qkv, const Tensor& places, const AttentionSpec& spec)
      : batch(qkv.size(0)),
        length(qkv.size(1)),
        key_length(length),
        heads(spec.queries),
        group(spec.group()),
        stride(qkv.size(2)),
        key_stride(stride),
        head_size(stride / spec.all()),
        channels(heads * head_size),
        first_channel(channels),
        key_channels(spec.keys * head_size),
        scale(score_scale(spec, head_size)),
        cap(spec.cap),
        window(spec.window < length ? spec.window : 0),
        bidirectional(spec.bidirectional),
        pattern(spec.pattern),
        sinks(optional_data<float>(spec.sinks)),
        bias(optional_data<float>(spec.bias)),
        distances(spec.bias ? spec.bias.size(1) : 0),
        positions(optional_data<std::int32_t>(places)) {}
  /// Cross-attention: queries q attend to the first `counts` keys and values of sequences in kv.
  AttentionSizes(const Tensor& q, const Tensor& kv, const Tensor& counts, const AttentionSpec& spec)
      : batch(q.size(0)),
        length(q.size(1)),
        key_length(kv.size(1)),
        heads(spec.queries),
        group(spec.group()),
        stride(q.size(2)),
        key_stride(kv.size(2)),
        head_size(stride / spec.queries),
        channels(stride),
        first_channel(0),
        key_channels(spec.keys * head_size),
        scale(score_scale(spec, head_size)),
        cap(spec.cap),
        bidirectional(true),
        across(true),
        lengths(optional_data<std::int32_t>(counts)) {}
  std::int64_t items() const { return batch * heads; }
  /// Returns a query's final softmax state from its highest score and Σ e^(score − highest).
  SoftmaxResult end_softmax(std::int64_t item, float highest, float total) const {
    if (across && total == 0) return {highest, 0};  // it attends to no key
    if (sinks == nullptr) return {highest + std::log(total), 1.0f / total};
    const float sink = sinks[item % heads], most = std::max(highest, sink);
    const float factor = std::exp(highest - most), all = total * factor + std::exp(sink - most);
    return {most + std::log(all), factor / all};
  }
  /// Return the offsets of an item's row 0 in y, in the queries, and in the rows of keys.
  std::int64_t first_of(std::int64_t item) const {
    return item / heads * length * channels + item % heads * head_size;
  }
  std::int64_t queries_at(std::int64_t item) const {
    return item / heads * length * stride + item % heads * head_size;
  }
  std::int64_t keys_at(std::int64_t item) const {
    return item / heads * key_length * key_stride + first_channel +
           item % heads / group * head_size;
  }
  std::int64_t values_at(std::int64_t item) const { return keys_at(item) + key_channels; }
  const float* bias_of(std::int64_t item, std::int64_t query) const {
    return bias + item % heads * distances + distances / 2 - query;
  }
  /// Returns whether windows, documents, a pattern or lengths mask keys.
  bool masks() const {
    return window > 0 || positions != nullptr || pattern.is_on() || lengths != nullptr;
  }
  /// Returns the number of keys of an item that any query attends to.
  std::int64_t keys_of(std::int64_t item) const {
    return lengths != nullptr ? lengths[item / heads] : key_length;
  }
  /// Returns the first key that a query of an item attends to. Never decreases with the query.
  std::int64_t first_key(std::int64_t item, std::int64_t query) const {
    if (across) return 0;
    std::int64_t first = window > 0 ? query - window + 1 : 0;
    if (positions != nullptr)
      first = std::max(first, query - positions[item / heads * length + query]);
    return std::clamp<std::int64_t>(first, 0, query);
  }
  /// Returns the end of the keys that a query attends to.
  std::int64_t end_key(std::int64_t item, std::int64_t query) const {
    if (across) return keys_of(item);
    return bidirectional ? end_query(item, query) : query + 1;
  }
  std::int32_t head_of(std::int64_t item) const { return static_cast<std::int32_t>(item % heads); }
  /// Returns the pattern's block of a query or key.
  std::int32_t block_of(std::int64_t row) const {
    return static_cast<std::int32_t>(row / pattern.block);
  }
  /// Returns the first pattern block from `block` on that any of queries [first, last] attends to.
  std::int32_t next_block(std::int64_t item, std::int64_t first, std::int64_t last,
                          std::int32_t block) const {
    std::int32_t next = BlockPattern::kNone;
    for (std::int32_t i = block_of(first); i <= block_of(last); ++i)
      next = std::min(next, pattern.next_visible(head_of(item), i, block));
    return next;
  }
  /// Returns the next run of consecutive keys in [from, end), at most `most`, whose blocks one of
  /// an item's queries [first, last] attends to; [end, end) if there are none.
  KeyRange next_keys(std::int64_t item, std::int64_t first, std::int64_t last, std::int64_t from,
                     std::int64_t end, std::int64_t most) const {
    if (from >= end) return {end, end};
    if (!pattern.is_on()) return {from, std::min(from + most, end)};
    std::int64_t block = next_block(item, first, last, block_of(from));
    const std::int64_t begin = std::min(std::max(from, block * pattern.block), end);
    end = std::min(begin + most, end);
    std::int64_t run = begin;
    while (run < end) {
      run = std::min((block + 1) * pattern.block, end);
      if (run < end && next_block(item, first, last, block_of(run)) != ++block) break;
    }
    return {begin, run};
  }
  /// Return the range [first_query, end_query) of the queries that attend to a key of an item.
  std::int64_t first_query(std::int64_t item, std::int64_t key) const {
    return bidirectional ? first_key(item, key) : key;
  }
  std::int64_t end_query(std::int64_t item, std::int64_t key) const {
    if (across) return key < keys_of(item) ? length : 0;
    std::int64_t end = masks() ? key + 1 : length, unseen = length;
    while (end < unseen) {
      const std::int64_t middle = (end + unseen) / 2;
      if (first_key(item, middle) > key) {
        unseen = middle;
      } else {
        end = middle + 1;
      }
    }
    return end;
  }

  std::int64_t batch;
  std::int64_t length;  // queries of a sequence
  std::int64_t key_length;
  std::int64_t heads;               // query heads
  std::int64_t group;               // query heads that share a key and value head
  std::int64_t stride, key_stride;  // elements between adjacent rows
  std::int64_t head_size;
  std::int64_t channels;       // channels of y
  std::int64_t first_channel;  // offset of the keys in their rows
  std::int64_t key_channels;   // channels of all key heads
  float scale;
  float cap;
  std::int64_t window = 0;  // 0: unlimited
  bool bidirectional;
  bool across = false;  // cross-attention
  BlockPattern pattern{};
  const float* sinks = nullptr;  // (H), or null
  const float* bias = nullptr;   // (H, distances), or null
  std::int64_t distances = 0;
  const std::int32_t* positions = nullptr;  // (B, T), or null
  const std::int32_t* lengths = nullptr;    // (B), or null
};

/// Replaces each score s by cap·tanh(scale·s/cap).
inline void cap_scores(float* scores, std::int64_t count, float scale, float cap) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    scores[i] = cap * hyperbolic_tangent(scores[i] * scale / cap);
}

/// Rows (T, head_size) of one head in f32: read as HeadRows, accumulated as HeadSums.
template <class Value>
struct RowsOf {
  Value* data;
  std::int64_t stride;
  Value* row(std::int64_t index) const { return data + index * stride; }
};
using HeadRows = RowsOf<const float>;
using HeadSums = RowsOf<float>;

/// Returns the rows in place if they are f32, else copies them to scratch (T, head_size).
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

/// Writes rows from scratch back to the tensor; does nothing if they are in place.
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

/// A block of queries and a block of the keys that they attend to.
struct ScoreBlock {
  std::int64_t first_query;
  std::int64_t queries;
  std::int64_t first_key;
  std::int64_t keys;
  std::int64_t end(std::int64_t row, std::int64_t item, const AttentionSizes& sizes) const {
    return std::clamp<std::int64_t>(sizes.end_key(item, first_query + row) - first_key, 0, keys);
  }
  /// Returns the first of the block's keys that query `row` attends to.
  std::int64_t begin(std::int64_t row, std::int64_t item, const AttentionSizes& sizes) const {
    if (!sizes.masks()) return 0;
    return std::clamp<std::int64_t>(sizes.first_key(item, first_query + row) - first_key, 0,
                                    end(row, item, sizes));
  }
  /// Calls hide(begin, end) for each run of the block's keys that the pattern masks for query
  /// `row`. Does nothing if all queries of the block attend to the same keys.
  template <class Hide>
  void for_hidden(std::int64_t row, std::int64_t item, const AttentionSizes& sizes,
                  const Hide& hide) const {
    const BlockPattern& pattern = sizes.pattern;
    if (!pattern.is_on() || pattern.block % kQueryBlock == 0) return;
    const std::int32_t own = sizes.block_of(first_query + row);
    for (std::int32_t j = sizes.block_of(first_key);
         j * std::int64_t{pattern.block} < first_key + keys; ++j) {
      if (pattern.attends(sizes.head_of(item), own, j)) continue;
      const std::int64_t begin = std::int64_t{pattern.block} * j - first_key;
      hide(std::max<std::int64_t>(begin, 0), std::min(begin + pattern.block, keys));
    }
  }
};

/// Calls visit(block, is_first) for blocks of up to kKeyBlock keys that the queries attend to.
template <class Visit>
inline void for_key_blocks(std::int64_t item, std::int64_t first_query, std::int64_t queries,
                           const AttentionSizes& sizes, const Visit& visit) {
  const std::int64_t last = first_query + queries - 1, seen = sizes.end_key(item, last);
  std::int64_t from = sizes.first_key(item, first_query);
  for (bool is_first = true; from < seen; is_first = false) {
    const KeyRange keys = sizes.next_keys(item, first_query, last, from, seen, kKeyBlock);
    if (keys.begin == keys.end) break;
    visit(ScoreBlock{first_query, queries, keys.begin, keys.end - keys.begin}, is_first);
    from = keys.end;
  }
}

/// scores (queries, keys) = scale · left · rightᵀ, for queries and keys, or dy and values.
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

/// Adds the bias by distance, if any, to a block of scores.
inline void add_bias(float* scores, const ScoreBlock& block, std::int64_t item,
                     const AttentionSizes& sizes) {
  for (std::int64_t row = 0; sizes.bias != nullptr && row < block.queries; ++row) {
    const float* const bias = sizes.bias_of(item, block.first_query + row) + block.first_key;
    float* const to = scores + row * block.keys;
#pragma omp simd
    for (std::int64_t key = 0; key < block.keys; ++key) to[key] += bias[key];
  }
}

/// rows[first_query...] = or += weights (queries, keys) · right[first_key...].
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

/// rows[first_key...] = or += weightsᵀ · right[first_query...].
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

template <class T>
struct AttentionRows {
  T *queries, *keys;
};

/// Rows of queries, and of keys and values, or their gradients. In self-attention both are qkv.
struct AttentionOperands {
  template <class T>
  AttentionRows<T> rows() const {
    return {queries.data<std::remove_const_t<T>>(), keys.data<std::remove_const_t<T>>()};
  }
  const Tensor &queries, &keys;
};

struct AttentionResults {
  const Tensor &dy, &y, &log_sum_exp;
};

/// Implement the forward and backward passes of self-attention and cross-attention.
void forward_attention(const Tensor& y, const Tensor& log_sum_exp, const AttentionOperands& from,
                       const AttentionSizes& sizes, const Stream& stream);
void backward_attention(const AttentionOperands& gradients, const AttentionResults& results,
                        const AttentionOperands& from, const AttentionSizes& sizes,
                        const Stream& stream);

}  // namespace hybrid_trainer::kernels::cpu
