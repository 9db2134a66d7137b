#pragma once

#include <string>

#include "hybrid_trainer/nn/branch.h"

namespace hybrid_trainer {

/// The two-layer perceptron: y = residual + c_proj(gelu(c_fc(x))).
class FeedForward final : public Branch, public Rebuilder {
 public:
  FeedForward(const std::string& name, const BlockSpec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// gelu(x) from the pre-activation x.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;
  Linear& projection() override { return projection_; }

 private:
  Linear expansion_, projection_;
};

}  // namespace hybrid_trainer
