#include "hybrid_trainer/nn/head_norms.h"

#include "hybrid_trainer/nn/gradient_sink.h"

namespace hybrid_trainer {

/// All queries together are one head as wide as they are, and likewise all keys.
HeadNorms::HeadNorms(const ModuleName& name, const kernels::AttentionSpec& heads,
                     std::int64_t head_size, const kernels::RmsNormSpec& norm, bool whole,
                     const Stream& stream)
    : norm_(norm),
      query_heads_{0, whole ? 1 : heads.queries},
      key_heads_{whole ? heads.queries / heads.keys : heads.queries, whole ? 1 : heads.keys},
      queries_(
          rms_norm_gain(name / "q_norm", (whole ? heads.queries : 1) * head_size, norm, stream)),
      keys_(rms_norm_gain(name / "k_norm", (whole ? heads.keys : 1) * head_size, norm, stream)) {}

void HeadNorms::forward(const Tensor& qkv, const Stream& stream) {
  kernels::rms_norm_heads_forward(qkv, query_heads_, queries_.acquire_master(stream), norm_,
                                  stream);
  kernels::rms_norm_heads_forward(qkv, key_heads_, keys_.acquire_master(stream), norm_, stream);
}

void HeadNorms::backward(const Tensor& dqkv, const Tensor& qkv, const Stream& stream) {
  const auto part = [&](Parameter& gain, const kernels::HeadRange& heads) {
    GradientContribution dgain(gain, stream);
    kernels::rms_norm_heads_backward(dqkv, dgain.gradient_or_scratch(), dgain.next_mode(), qkv,
                                     heads, gain.acquire_master(stream), norm_, stream);
  };
  part(queries_, query_heads_);
  part(keys_, key_heads_);
}

void HeadNorms::visit_parameters(const ParameterVisitor& visit) {
  visit(queries_);
  visit(keys_);
}

}  // namespace hybrid_trainer
