#pragma once

#include <optional>

#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// y = x·wᵀ + bias over the last dimension. weight: (outputs, inputs), bias: (outputs) or none,
/// named "<name>.weight|bias".
class Linear final : public Module {
 public:
  Linear(const std::string& name, std::int64_t inputs, std::int64_t outputs, const Stream& stream,
         bool has_bias = true);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  /// The same with `residual` (shape of y, or undefined) added to y.
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream);
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// The product alone, with nothing on the tape.
  Tensor product(const Tensor& x, const Tensor& residual, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) override;
  Parameter& weight() { return weight_; }
  /// The bias for a product; no values where there is none.
  Weight acquire_bias(const Stream& stream) const {
    return bias_ ? bias_->acquire_master(stream) : Weight{};
  }

 private:
  friend class LinearGradients;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

/// The gradients of weight and bias alone: written when this is made, and complete when it is
/// destroyed, until when the weight may be read.
class LinearGradients {
 public:
  LinearGradients(Linear& linear, const Tensor& dy, const Tensor& x, const Stream& stream);

 private:
  GradientContribution dweight_, dbias_;
};

}  // namespace hybrid_trainer
