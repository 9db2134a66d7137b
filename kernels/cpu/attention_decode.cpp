#include <cmath>
#include <cstring>
#include <limits>

#include "hybrid_trainer/kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

template <class T>
struct DecodeHead {
  T* y;
  T* key_cache;  // row 0 of this head; rows are `channels` apart
  T* value_cache;
  const T* qkv;    // the query; the key is `channels` further on, the value twice that
  float* weights;  // one for each position
  float* output;   // (head_size) f32
};

/// weights[t] = e^(score − highest score) over t <= position, score = query · key[t] · scale;
/// returns the sum by which they still have to be divided.
template <class T>
inline float weigh_positions(const DecodeHead<T>& head, std::int64_t position,
                             std::int64_t channels, std::int64_t head_size) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_size));
  float highest = -std::numeric_limits<float>::infinity();
  for (std::int64_t t = 0; t <= position; ++t) {
    const T* const key = head.key_cache + t * channels;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < head_size; ++i) sum += load(head.qkv + i) * load(key + i);
    head.weights[t] = sum * scale;
    highest = std::max(highest, sum * scale);
  }
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t t = 0; t <= position; ++t) {
    head.weights[t] = exponential(head.weights[t] - highest);
    total += head.weights[t];
  }
  return total;
}

template <class T>
inline void decode_head(const DecodeHead<T>& head, std::int64_t position, std::int64_t channels,
                        std::int64_t head_size) {
  for (std::int64_t i = 0; i < head_size; ++i) {
    head.key_cache[position * channels + i] = head.qkv[channels + i];
    head.value_cache[position * channels + i] = head.qkv[2 * channels + i];
    head.output[i] = 0;
  }
  const float total = weigh_positions(head, position, channels, head_size);
  for (std::int64_t t = 0; t <= position; ++t) {
    const T* const value = head.value_cache + t * channels;
    const float weight = head.weights[t];
#pragma omp simd
    for (std::int64_t i = 0; i < head_size; ++i) head.output[i] += weight * load(value + i);
  }
#pragma omp simd
  for (std::int64_t i = 0; i < head_size; ++i) store(head.y + i, head.output[i] / total);
}

}  // namespace

void attention_decode(const Tensor& y, const Tensor& key_cache, const Tensor& value_cache,
                      const Tensor& qkv, std::int64_t position, int heads, const Stream& stream) {
  const std::int64_t channels = y.size(1);
  const std::int64_t head_size = channels / heads;
  const std::int64_t cache_size = key_cache.size(1) * channels;
  const std::int64_t scratch_size = key_cache.size(1) + head_size;
  const std::int64_t items = y.size(0) * heads;
  const Tensor scratch = empty_workspace(items * scratch_size, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const scratch_base = scratch.data<float>();
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const out = y.data<T>();
    T* const keys = key_cache.data<T>();
    T* const values = value_cache.data<T>();
    const T* const in = qkv.data<T>();
    parallel_rows(items, position * head_size + 1, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t sequence = item / heads;
        const std::int64_t column = item % heads * head_size;
        float* const weights = scratch_base + item * scratch_size;
        decode_head(DecodeHead<T>{.y = out + sequence * channels + column,
                                  .key_cache = keys + sequence * cache_size + column,
                                  .value_cache = values + sequence * cache_size + column,
                                  .qkv = in + sequence * 3 * channels + column,
                                  .weights = weights,
                                  .output = weights + (scratch_size - head_size)},
                    position, channels, head_size);
      }
    });
  });
}

void store_keys_values(const Tensor& key_cache, const Tensor& value_cache, const Tensor& qkv,
                       const Stream&) {
  const std::int64_t time = qkv.size(1), capacity = key_cache.size(1);
  const std::size_t row_bytes = static_cast<std::size_t>(key_cache.size(2)) * size_of(qkv.dtype());
  const char* const from = static_cast<const char*>(qkv.raw());
  for (std::int64_t b = 0; b < qkv.size(0); ++b) {
    for (std::int64_t t = 0; t < time; ++t) {
      const char* const row = from + static_cast<std::size_t>(b * time + t) * 3 * row_bytes;
      const std::size_t at = static_cast<std::size_t>(b * capacity + t) * row_bytes;
      std::memcpy(static_cast<char*>(key_cache.raw()) + at, row + row_bytes, row_bytes);
      std::memcpy(static_cast<char*>(value_cache.raw()) + at, row + 2 * row_bytes, row_bytes);
    }
  }
}

}  // namespace hybrid_trainer::kernels::cpu
