#include <algorithm>
#include <cstring>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cpu/decode_head.h"
#include "kernels/cpu/parallel.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// A call's arrays and sizes.
template <class T>
struct DecodeArrays {
  T *y, *keys, *values;
  const T* qkv;
  const std::int32_t *texts, *positions;
  float* scratch;             // scratch_size for each item: a text's heads that share keys
  std::int64_t scratch_size;  // the weights of all positions, then a head's output
  std::int64_t cache_size;    // elements of a text
  std::int64_t channels, head_size;
  const float *sinks, *bias;  // of heads of queries, or null
  std::int64_t distances;     // of a head's bias
  AttentionSpec spec;
  /// At whose element t the bias of the score of position t stands.
  const float* bias_of(std::int64_t head, std::int64_t position) const {
    return bias == nullptr ? nullptr : bias + head * distances + distances / 2 - position;
  }
};

template <class T>
inline void decode_item(const DecodeArrays<T>& arrays, std::int64_t item) {
  const std::int64_t channels = arrays.channels, head_size = arrays.head_size;
  const AttentionSpec& spec = arrays.spec;
  const std::int64_t n = item / spec.keys, column = item % spec.keys * head_size;
  const std::int64_t position = arrays.positions[n], group = spec.group();
  const std::int64_t query_channels = channels * group;
  const DecodeSpec one{spec.window > 0 ? std::max<std::int64_t>(0, position - spec.window + 1) : 0,
                       position,
                       channels,
                       head_size,
                       score_scale(spec, head_size),
                       spec.cap,
                       spec.pattern};
  const std::int64_t cache_at = arrays.texts[n] * arrays.cache_size + column;
  const T* const row = arrays.qkv + n * (query_channels + 2 * channels);
  const T* const key = row + query_channels + column;
  std::copy_n(key, head_size, arrays.keys + cache_at + position * channels);
  std::copy_n(key + channels, head_size, arrays.values + cache_at + position * channels);
  float* const weights = arrays.scratch + item * arrays.scratch_size;
  for (std::int64_t member = 0; member < group; ++member) {
    const std::int64_t head = item % spec.keys * group + member, query = head * head_size;
    decode_head(DecodeHead<T>{.y = arrays.y + n * query_channels + query,
                              .keys = arrays.keys + cache_at,
                              .values = arrays.values + cache_at,
                              .query = row + query,
                              .weights = weights,
                              .output = weights + (arrays.scratch_size - head_size),
                              .sink = arrays.sinks ? arrays.sinks[head]
                                                   : -std::numeric_limits<float>::infinity(),
                              .bias = arrays.bias_of(head, position),
                              .index = static_cast<std::int32_t>(head)},
                one);
  }
}

/// The last position of those given, each of which must be in the caches.
std::int64_t checked_places(const Tensor& texts, const Tensor& positions, const Tensor& key_cache) {
  std::int64_t last = 0;
  for (std::int64_t n = 0; n < texts.elements(); ++n) {
    const std::int64_t text = texts.data<std::int32_t>()[n],
                       position = positions.data<std::int32_t>()[n];
    if (text < 0 || text >= key_cache.size(0) || position < 0 || position >= key_cache.size(1)) {
      throw ShapeMismatch(concat("attention_decode: row ", n, " is at position ", position,
                                 " of text ", text, ", key_cache is ", key_cache.shape().text(),
                                 "; want positions below ", key_cache.size(1)));
    }
    last = std::max(last, position);
  }
  return last;
}

}  // namespace

void attention_decode(const Tensor& y, const Tensor& key_cache, const Tensor& value_cache,
                      const Tensor& qkv, const Tensor& texts, const Tensor& positions,
                      AttentionSpec spec, const Stream& stream) {
  const std::int64_t channels = key_cache.size(2), head_size = channels / spec.keys;
  const std::int64_t scratch_size = key_cache.size(1) + head_size;
  const std::int64_t items = y.size(0) * spec.keys;
  const Tensor scratch = empty_workspace(items * scratch_size, DType::kF32, stream);
  if (simulated(stream)) return;
  const std::int64_t last = checked_places(texts, positions, key_cache);
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    const DecodeArrays<T> arrays{.y = y.data<T>(),
                                 .keys = key_cache.data<T>(),
                                 .values = value_cache.data<T>(),
                                 .qkv = qkv.data<T>(),
                                 .texts = texts.data<std::int32_t>(),
                                 .positions = positions.data<std::int32_t>(),
                                 .scratch = scratch.data<float>(),
                                 .scratch_size = scratch_size,
                                 .cache_size = key_cache.size(1) * channels,
                                 .channels = channels,
                                 .head_size = head_size,
                                 .sinks = spec.sinks ? spec.sinks.data<float>() : nullptr,
                                 .bias = spec.bias ? spec.bias.data<float>() : nullptr,
                                 .distances = spec.bias ? spec.bias.size(1) : 0,
                                 .spec = spec};
    const auto row_elements = last * head_size * spec.group() + 1;
    parallel_rows(items, row_elements, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) decode_item(arrays, item);
    });
  });
}

void store_keys_values(const Tensor& key_cache, const Tensor& value_cache, const Tensor& qkv,
                       const Stream&) {
  const std::int64_t time = qkv.size(1), capacity = key_cache.size(1);
  const std::size_t size = size_of(qkv.dtype());
  const std::size_t row_bytes = static_cast<std::size_t>(key_cache.size(2)) * size;
  const std::size_t stride = static_cast<std::size_t>(qkv.size(2)) * size;
  const char* const keys = static_cast<const char*>(qkv.raw()) + stride - 2 * row_bytes;
  for (std::int64_t b = 0; b < qkv.size(0); ++b) {
    for (std::int64_t t = 0; t < time; ++t) {
      const char* const row = keys + static_cast<std::size_t>(b * time + t) * stride;
      const std::size_t at = static_cast<std::size_t>(b * capacity + t) * row_bytes;
      std::memcpy(static_cast<char*>(key_cache.raw()) + at, row, row_bytes);
      std::memcpy(static_cast<char*>(value_cache.raw()) + at, row + row_bytes, row_bytes);
    }
  }
}

}  // namespace hybrid_trainer::kernels::cpu
