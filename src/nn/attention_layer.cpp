#include "hybrid_trainer/nn/attention_layer.h"

#include "hybrid_trainer/kernels/attention.h"

namespace hybrid_trainer {
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
    kernels::store_keys_values(cache.keys, cache.values, qkv, stream);
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
