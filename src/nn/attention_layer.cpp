#include "hybrid_trainer/nn/attention_layer.h"

#include <cstring>

#include "hybrid_trainer/kernels/attention.h"

namespace hybrid_trainer {
namespace {

/// Copies keys and values of qkv (B, T, 3·C) to rows [0, T) of the caches.
void fill_cache(const KeyValueCache& cache, const Tensor& qkv) {
  const std::int64_t time = qkv.size(1), width = qkv.size(2) / 3, capacity = cache.keys.size(1);
  const std::size_t row_bytes = static_cast<std::size_t>(width) * size_of(qkv.dtype());
  const char* from = static_cast<const char*>(qkv.raw());
  for (std::int64_t b = 0; b < qkv.size(0); ++b) {
    for (std::int64_t t = 0; t < time; ++t) {
      const char* row = from + static_cast<std::size_t>(b * time + t) * 3 * row_bytes;
      const std::size_t at = static_cast<std::size_t>(b * capacity + t) * row_bytes;
      std::memcpy(static_cast<char*>(cache.keys.raw()) + at, row + row_bytes, row_bytes);
      std::memcpy(static_cast<char*>(cache.values.raw()) + at, row + 2 * row_bytes, row_bytes);
    }
  }
}

}  // namespace

AttentionLayer::AttentionLayer(const std::string& name, std::int64_t width, int heads,
                               const Stream& stream)
    : heads_(heads),
      query_key_value_(name + ".c_attn", width, 3 * width, stream),
      projection_(name + ".c_proj", width, width, stream) {}

Tensor AttentionLayer::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                               const Stream& stream) {
  const Tensor qkv = query_key_value_.forward(x, tape, stream);
  const std::int64_t batch = x.size(0), time = x.size(1);
  Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  Tensor log_sum_exp;
  if (tape.keeps())
    log_sum_exp =
        Tensor::empty({batch, heads_, time}, DType::kF32, MemoryKind::kActivations, stream);
  kernels::attention_forward(y, log_sum_exp, qkv, heads_, stream);
  tape.push(qkv, stream);
  tape.push(y, stream);
  tape.push(log_sum_exp, stream);
  return projection_.forward(y, residual, tape, stream);
}

Tensor AttentionLayer::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor dattention = projection_.backward(dy, tape, stream);
  const Tensor log_sum_exp = tape.pop(stream), y = tape.pop(stream), qkv = tape.pop(stream);
  Tensor dqkv = Tensor::empty_like(qkv, MemoryKind::kActivations, stream);
  kernels::attention_backward(dqkv, dattention, y, log_sum_exp, qkv, heads_, stream);
  return query_key_value_.backward(dqkv, tape, stream);
}

Tensor AttentionLayer::forward_cached(const Tensor& x, const Tensor& residual,
                                      std::int64_t position, const KeyValueCache& cache,
                                      const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  const Tensor qkv = query_key_value_.forward(x, tape, stream);
  Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  const std::int64_t batch = x.size(0), width = x.size(2);
  if (position == 0) {
    fill_cache(cache, qkv);
    kernels::attention_forward(y, Tensor{}, qkv, heads_, stream);
  } else {
    require(x.size(1) == 1, "attention: with a filled cache one position follows at a time");
    kernels::attention_decode(y.view({batch, width}), cache.keys, cache.values,
                              qkv.view({batch, 3 * width}), position, heads_, stream);
  }
  return projection_.forward(y, residual, tape, stream);
}

void AttentionLayer::visit_parameters(const ParameterVisitor& visit) {
  query_key_value_.visit_parameters(visit);
  projection_.visit_parameters(visit);
}

}  // namespace hybrid_trainer
