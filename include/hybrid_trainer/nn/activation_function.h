#pragma once

#include "hybrid_trainer/kernels/activation.h"
#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// f of each number. Has no parameters.
class ActivationFunction final : public Module, public Rebuilder {
 public:
  explicit ActivationFunction(kernels::ActivationKind kind) : kind_(kind) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// y from x.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}

 private:
  kernels::ActivationKind kind_;
};

}  // namespace hybrid_trainer
