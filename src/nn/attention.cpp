#include "hybrid_trainer/nn/attention.h"

#include "hybrid_trainer/kernels/attention.h"

namespace hybrid_trainer {
namespace {

/// Keys and values of all positions so far, (B, max T, C) each.
struct KeyValueCache final : BranchState {
  Tensor keys, values;
};

}  // namespace

Attention::Attention(const std::string& name, const BlockSpec& spec, const Stream& stream)
    : heads_(spec.heads),
      head_size_(spec.head_size),
      query_key_value_(name + ".c_attn", spec.width, 3 * inner(), stream, spec.biases),
      projection_(name + ".c_proj", inner(), spec.width, stream, spec.biases) {
  query_key_value_.weight().set_blocks(3 * heads_);
}

Tensor Attention::attended(const Tensor& qkv, const Tensor& log_sum_exp,
                           const Stream& stream) const {
  Tensor y = Tensor::empty({qkv.size(0), qkv.size(1), inner()}, qkv.dtype(),
                           MemoryKind::kActivations, stream);
  kernels::attention_forward(y, log_sum_exp, qkv, heads_, stream);
  return y;
}

Tensor Attention::rebuild(const Tensor& source, const Stream& stream) {
  return attended(source, Tensor{}, stream);
}

Tensor Attention::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                          const Stream& stream) {
  const Tensor qkv = query_key_value_.forward(x, tape, stream);
  Tensor log_sum_exp;
  if (tape.keeps())
    log_sum_exp = Tensor::empty({x.size(0), heads_, x.size(1)}, DType::kF32,
                                MemoryKind::kActivations, stream);
  const Tensor y = attended(qkv, log_sum_exp, stream);
  tape.save({ActivationRole::kQueriesKeysValues, qkv, true}, stream);
  tape.can_rebuild(y, Rebuild::kAttended, qkv, *this);
  tape.save({ActivationRole::kAttentionOutput, y}, stream);
  tape.save({ActivationRole::kStatistics, log_sum_exp}, stream);
  return projection_.forward(y, residual, tape, stream);
}

Tensor Attention::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor dattention = projection_.backward(dy, tape, stream);
  const Tensor log_sum_exp = tape.take(stream), y = tape.take(stream), qkv = tape.take(stream);
  Tensor dqkv = Tensor::empty_like(qkv, MemoryKind::kActivations, stream);
  kernels::attention_backward(dqkv, dattention, y, log_sum_exp, qkv, heads_, stream);
  return query_key_value_.backward(dqkv, tape, stream);
}

Tensor Attention::decode(const Tensor& x, const Tensor& residual, std::int64_t position,
                         BranchState* state, const Pass& pass, const Stream& stream) {
  const auto& cache = dynamic_cast<const KeyValueCache&>(*state);
  ForwardOnlyTape tape(pass);
  const Tensor qkv = query_key_value_.forward(x, tape, stream);
  const std::int64_t batch = x.size(0), time = x.size(1);
  const Tensor y =
      Tensor::empty({batch, time, inner()}, x.dtype(), MemoryKind::kActivations, stream);
  if (position == 0) {
    kernels::store_keys_values(cache.keys, cache.values, qkv, stream);
    kernels::attention_forward(y, Tensor{}, qkv, heads_, stream);
  } else {
    require(time == 1, "attention: with a filled cache one position follows at a time");
    kernels::attention_decode(y.view({batch, inner()}), cache.keys, cache.values,
                              qkv.view({batch, 3 * inner()}), position, heads_, stream);
  }
  return projection_.forward(y, residual, tape, stream);
}

std::unique_ptr<BranchState> Attention::make_state(std::int64_t batch, std::int64_t context,
                                                   DType dtype, const Stream& stream) const {
  auto cache = std::make_unique<KeyValueCache>();
  for (Tensor* tensor : {&cache->keys, &cache->values}) {
    *tensor = Tensor::empty({batch, context, inner()}, dtype, MemoryKind::kActivations, stream);
  }
  return cache;
}

void Attention::visit_parameters(const ParameterVisitor& visit) {
  query_key_value_.visit_parameters(visit);
  projection_.visit_parameters(visit);
}

}  // namespace hybrid_trainer
