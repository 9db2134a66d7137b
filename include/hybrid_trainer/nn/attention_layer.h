#pragma once

#include "hybrid_trainer/nn/linear.h"

namespace hybrid_trainer {

/// Keys and values of all positions so far, for generation: (B, max T, C) each, one pair per layer.
struct KeyValueCache {
  Tensor keys, values;
};

/// Causal multi-head self-attention of GPT-2: y = residual + c_proj(attention(c_attn(x))).
class AttentionLayer {
 public:
  AttentionLayer(const std::string& name, std::int64_t width, int heads, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream);
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream);
  /// Forward of x (B, T, C) at positions [0, T), also filling the cache, or of one position (B, 1,
  /// C) against it.
  Tensor forward_cached(const Tensor& x, const Tensor& residual, std::int64_t position,
                        const KeyValueCache& cache, const Pass& pass, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit);
  Linear& projection() { return projection_; }

 private:
  int heads_;
  Linear query_key_value_, projection_;
};

}  // namespace hybrid_trainer
