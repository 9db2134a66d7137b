#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/attention.h"
#include "kernels/attention/attention_cpu.h"

namespace hybrid_trainer::kernels::cpu {

template <class T>
struct DecodeHead {
  T* y;
  const T* keys;  // row 0 of this head; rows have stride `stride`
  const T* values;
  const T* query;
  float* weights;      // one per position
  float* output;       // (head_size) f32
  float sink;          // -∞: none
  const float* bias;   // one per position, or null
  std::int32_t index;  // of the query head
};

/// The keys of [first, position] that the pattern lets one query attend to.
struct DecodeSpec {
  template <class Visit>
  void for_keys(std::int32_t head, const Visit& visit) const {
    if (!pattern.is_on()) return visit(first, position + 1);
    const auto block_of = [&](std::int64_t t) {
      return static_cast<std::int32_t>(t / pattern.block);
    };
    const std::int32_t own = block_of(position);
    for (std::int32_t j = pattern.next_visible(head, own, block_of(first)); j <= own;
         j = pattern.next_visible(head, own, j + 1)) {
      const std::int64_t begin = std::int64_t{pattern.block} * j;
      visit(std::max(begin, first), std::min(begin + pattern.block, position + 1));
    }
  }
  std::int64_t first, position;
  std::int64_t stride, head_size;  // elements between rows of keys or values; channels
  float scale, cap;
  BlockPattern pattern;
};

/// weights[t] = e^(score − highest score), score = query · key[t] · scale. Returns
/// their sum, the softmax's denominator.
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

namespace {

template <class T>
struct DecodeArrays {
  T *y, *keys, *values;
  const T* qkv;
  const std::int32_t *texts, *positions;
  float* scratch;             // scratch_size per item: the query heads of a text with one key head
  std::int64_t scratch_size;  // the weights of all positions, then the output of a head
  std::int64_t cache_size;    // elements per text
  std::int64_t channels, head_size;
  const float *sinks, *bias;  // by query head, or null
  std::int64_t distances;     // number of distances in a head's bias
  AttentionSpec spec;
  /// Returns the bias of the scores of `head`; element t applies to position t.
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

/// Checks that each position is in the caches, and returns the largest one.
std::int64_t checked_places(const Tensor& texts, const Tensor& positions, const Tensor& key_cache) {
  std::int64_t last = 0;
  for (std::int64_t n = 0; n < texts.elements(); ++n) {
    const std::int64_t text = texts.data<std::int32_t>()[n],
                       position = positions.data<std::int32_t>()[n];
    if (text < 0 || text >= key_cache.size(0) || position < 0 || position >= key_cache.size(1))
      throw ShapeMismatch(concat("attention_decode: row ", n, " is at position ", position,
                                 " of text ", text, ", key_cache is ", key_cache.shape().text(),
                                 "; want positions below ", key_cache.size(1)));
    last = std::max(last, position);
  }
  return last;
}

void check_key_counts(const char* kernel, const Tensor& lengths, const Tensor& kv) {
  for (std::int64_t b = 0; lengths && b < lengths.elements(); ++b) {
    const std::int32_t length = lengths.data<std::int32_t>()[b];
    if (length >= 0 && length <= kv.size(1)) continue;
    throw ShapeMismatch(concat(kernel, ": length ", b, " is ", length, ", kv is ",
                               kv.shape().text(), "; want lengths of 0 to ", kv.size(1)));
  }
}

void check_sources(const Tensor& texts, std::int64_t texts_per_source, const Tensor& kv) {
  for (std::int64_t n = 0; n < texts.elements(); ++n) {
    const std::int32_t text = texts.data<std::int32_t>()[n];
    if (text >= 0 && text / texts_per_source < kv.size(0)) continue;
    throw ShapeMismatch(concat("cross_attention_decode: row ", n, " belongs to text ", text,
                               ", kv is ", kv.shape().text(), "; want texts below ",
                               kv.size(0) * texts_per_source, ", ", texts_per_source,
                               " per source"));
  }
}

template <class T>
struct SourceArrays {
  T* y;
  const T *q, *kv;
  const std::int32_t *texts, *lengths;  // lengths may be null
  float* scratch;                       // scratch_size per item
  std::int64_t scratch_size;            // the weights of all keys, then the output of a head
  std::int64_t texts_per_source, keys, head_size;
  AttentionSpec spec;
};

/// Computes the attention of the query heads that share a key head, for one row.
template <class T>
inline void decode_source(const SourceArrays<T>& arrays, std::int64_t item) {
  const AttentionSpec& spec = arrays.spec;
  const std::int64_t head_size = arrays.head_size, key_channels = spec.keys * head_size;
  const std::int64_t row = item / spec.keys, key_head = item % spec.keys;
  const std::int64_t source = arrays.texts[row] / arrays.texts_per_source;
  const std::int64_t seen = arrays.lengths != nullptr ? arrays.lengths[source] : arrays.keys;
  const DecodeSpec one{.first = 0,
                       .position = seen - 1,
                       .stride = 2 * key_channels,
                       .head_size = head_size,
                       .scale = score_scale(spec, head_size),
                       .cap = spec.cap,
                       .pattern = {}};
  const T* const keys = arrays.kv + source * arrays.keys * one.stride + key_head * head_size;
  float* const weights = arrays.scratch + item * arrays.scratch_size;
  for (int member = 0; member < spec.group(); ++member) {
    const std::int64_t at = (row * spec.queries + key_head * spec.group() + member) * head_size;
    if (seen == 0) {
      std::fill_n(arrays.y + at, head_size, T{});
      continue;
    }
    decode_head(DecodeHead<T>{.y = arrays.y + at,
                              .keys = keys,
                              .values = keys + key_channels,
                              .query = arrays.q + at,
                              .weights = weights,
                              .output = weights + arrays.keys,
                              .sink = -std::numeric_limits<float>::infinity(),
                              .bias = nullptr,
                              .index = 0},
                one);
  }
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
  visit_real(y.dtype(), [&]<class T>(T) {
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
                                 .sinks = optional_data<float>(spec.sinks),
                                 .bias = optional_data<float>(spec.bias),
                                 .distances = spec.bias ? spec.bias.size(1) : 0,
                                 .spec = spec};
    const auto row_elements = last * head_size * spec.group() + 1;
    for_each_row(items, row_elements, [=](std::int64_t item) { decode_item(arrays, item); });
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

void cross_attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                             const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                             const Stream& stream) {
  if (!simulated(stream)) check_key_counts("cross_attention_forward", lengths, kv);
  forward_attention(y, log_sum_exp, {q, kv}, AttentionSizes(q, kv, lengths, spec), stream);
}

void cross_attention_backward(const Tensor& dq, const Tensor& dkv, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                              const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                              const Stream& stream) {
  if (!simulated(stream)) check_key_counts("cross_attention_backward", lengths, kv);
  backward_attention({dq, dkv}, {dy, y, log_sum_exp}, {q, kv}, AttentionSizes(q, kv, lengths, spec),
                     stream);
}

void cross_attention_decode(const Tensor& y, const Tensor& q, const Tensor& kv, const Tensor& texts,
                            std::int64_t texts_per_source, const Tensor& lengths,
                            AttentionSpec spec, const Stream& stream) {
  const std::int64_t keys = kv.size(1), head_size = q.size(1) / spec.queries;
  const std::int64_t items = q.size(0) * spec.keys, scratch_size = keys + head_size;
  const Tensor scratch = empty_workspace(items * scratch_size, DType::kF32, stream);
  if (simulated(stream)) return;
  check_key_counts("cross_attention_decode", lengths, kv);
  check_sources(texts, texts_per_source, kv);
  visit_real(y.dtype(), [&]<class T>(T) {
    const SourceArrays<T> arrays{.y = y.data<T>(),
                                 .q = q.data<T>(),
                                 .kv = kv.data<T>(),
                                 .texts = texts.data<std::int32_t>(),
                                 .lengths = optional_data<std::int32_t>(lengths),
                                 .scratch = scratch.data<float>(),
                                 .scratch_size = scratch_size,
                                 .texts_per_source = texts_per_source,
                                 .keys = keys,
                                 .head_size = head_size,
                                 .spec = spec};
    const std::int64_t work = keys * head_size * spec.group() + 1;
    for_each_row(items, work, [=](std::int64_t item) { decode_source(arrays, item); });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
