#include "hybrid_trainer/kernels/cross_attention.h"

#include <algorithm>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "kernels/cpu/attention_pass.h"
#include "kernels/cpu/decode_head.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// Throws ShapeMismatch where a length is not one of keys that there are.
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
    throw ShapeMismatch(concat("cross_attention_decode: row ", n, " is of text ", text, ", kv is ",
                               kv.shape().text(), "; want texts below ",
                               kv.size(0) * texts_per_source, ", ", texts_per_source,
                               " for a source"));
  }
}

template <class T>
struct SourceArrays {
  T* y;
  const T *q, *kv;
  const std::int32_t *texts, *lengths;  // lengths: or null
  float* scratch;                       // scratch_size for each item
  std::int64_t scratch_size;            // the weights of all keys, then a head's output
  std::int64_t texts_per_source, keys, head_size;
  AttentionSpec spec;
};

/// A row's heads of queries that share one of keys.
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
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    const SourceArrays<T> arrays{.y = y.data<T>(),
                                 .q = q.data<T>(),
                                 .kv = kv.data<T>(),
                                 .texts = texts.data<std::int32_t>(),
                                 .lengths = lengths ? lengths.data<std::int32_t>() : nullptr,
                                 .scratch = scratch.data<float>(),
                                 .scratch_size = scratch_size,
                                 .texts_per_source = texts_per_source,
                                 .keys = keys,
                                 .head_size = head_size,
                                 .spec = spec};
    const std::int64_t work = keys * head_size * spec.group() + 1;
    parallel_rows(items, work, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) decode_source(arrays, item);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
