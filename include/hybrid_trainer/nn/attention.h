#pragma once

#include <string>

#include "hybrid_trainer/nn/branch.h"

namespace hybrid_trainer {

/// Causal multi-head self-attention: y = residual + c_proj(attention(c_attn(x))).
class Attention final : public Branch, public Rebuilder {
 public:
  Attention(const std::string& name, const BlockSpec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// What the heads attended to, from queries, keys and values.
  Tensor rebuild(const Tensor& source, const Stream& stream) override;
  /// x: (B, T, C) at position 0, or one position (B, 1, C) later. `state`: of make_state.
  Tensor decode(const Tensor& x, const Tensor& residual, std::int64_t position, BranchState* state,
                const Pass& pass, const Stream& stream) override;
  std::unique_ptr<BranchState> make_state(std::int64_t batch, std::int64_t context, DType dtype,
                                          const Stream& stream) const override;
  void visit_parameters(const ParameterVisitor& visit) override;
  Linear& projection() override { return projection_; }

 private:
  Tensor attended(const Tensor& qkv, const Tensor& log_sum_exp, const Stream& stream) const;
  std::int64_t inner() const { return heads_ * head_size_; }
  int heads_;
  std::int64_t head_size_;
  Linear query_key_value_, projection_;
};

}  // namespace hybrid_trainer
