#pragma once

#include <algorithm>

#include "hybrid_trainer/kernels/block_pattern.h"
#include "kernels/backend.h"
#include "kernels/cpu/vector_math.h"

/// Attention of one head of one new token.

namespace hybrid_trainer::kernels::cpu {

template <class T>
struct DecodeHead {
  T* y;
  const T* keys;  // row 0 of this head; rows are `stride` apart
  const T* values;
  const T* query;
  float* weights;      // one for each position
  float* output;       // (head_size) f32
  float sink;          // -∞: none
  const float* bias;   // one for each position, or null
  std::int32_t index;  // among the heads of queries
};

/// What one query makes of the keys at [first, position] that the pattern lets it see.
struct DecodeSpec {
  /// Calls visit(begin, end) for those in a row.
  template <class Visit>
  void for_keys(std::int32_t head, const Visit& visit) const {
    if (!pattern.is_on()) return visit(first, position + 1);
    const auto block_of = [&](std::int64_t t) {
      return static_cast<std::int32_t>(t / pattern.block);
    };
    const std::int32_t own = block_of(position);
    for (std::int32_t j = pattern.next_seen(head, own, block_of(first)); j <= own;
         j = pattern.next_seen(head, own, j + 1)) {
      const std::int64_t begin = std::int64_t{pattern.block} * j;
      visit(std::max(begin, first), std::min(begin + pattern.block, position + 1));
    }
  }
  std::int64_t first, position;
  std::int64_t stride, head_size;  // of keys and of values; of a row
  float scale, cap;
  BlockPattern pattern;
};

/// weights[t] = e^(score − highest score) over the keys, score = query · key[t] · scale; returns the
/// sum by which they still have to be divided, with what the sink adds.
template <class T>
inline float weigh_positions(const DecodeHead<T>& head, const DecodeSpec& spec) {
  const std::int64_t head_size = spec.head_size;
  const float scale = spec.scale, cap = spec.cap;
  float highest = head.sink, total = 0;
  spec.for_keys(head.index, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const T* const key = head.keys + t * spec.stride;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = 0; i < head_size; ++i) sum += load(head.query + i) * load(key + i);
      float score = sum * scale;
      if (head.bias != nullptr) score += head.bias[t];
      if (cap > 0) score = cap * hyperbolic_tangent(score / cap);
      head.weights[t] = score;
      highest = std::max(highest, score);
    }
  });
  spec.for_keys(head.index, [&](std::int64_t begin, std::int64_t end) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t t = begin; t < end; ++t) {
      head.weights[t] = exponential(head.weights[t] - highest);
      sum += head.weights[t];
    }
    total += sum;
  });
  return total + exponential(head.sink - highest);
}

template <class T>
inline void decode_head(const DecodeHead<T>& head, const DecodeSpec& spec) {
  const std::int64_t head_size = spec.head_size;
  for (std::int64_t i = 0; i < head_size; ++i) head.output[i] = 0;
  const float total = weigh_positions(head, spec);
  spec.for_keys(head.index, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const T* const value = head.values + t * spec.stride;
      const float weight = head.weights[t];
#pragma omp simd
      for (std::int64_t i = 0; i < head_size; ++i) head.output[i] += weight * load(value + i);
    }
  });
#pragma omp simd
  for (std::int64_t i = 0; i < head_size; ++i) store(head.y + i, head.output[i] / total);
}

}  // namespace hybrid_trainer::kernels::cpu
