#pragma once

#include <string>

#include "hybrid_trainer/nn/branch.h"

namespace hybrid_trainer {

/// The gated perceptron: y = residual + c_proj(f(gate)·up), where one product, c_fc, makes gate
/// and up: its weight is (2·inner, C), the gate's rows first.
class GatedFeedForward final : public Branch, public Rebuilder {
 public:
  GatedFeedForward(const std::string& name, const BlockSpec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// f(gate)·up from both.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;
  Linear& projection() override { return projection_; }

 private:
  Linear expansion_, projection_;
  kernels::Gate gate_;
};

}  // namespace hybrid_trainer
