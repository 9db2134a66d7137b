#pragma once

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Hands each weight the gradient that its update takes.
class GivenGradients final : public GradientSink {
 public:
  Tensor gradient(const Parameter&) const override { return now_; }
  void give(Parameter& parameter, const Tensor& gradient) {
    now_ = gradient;
    parameter.begin_gradient(*this, 1);
    if (gradient) parameter.gradient_was_replayed();
  }

 private:
  Tensor now_;
};

}  // namespace hybrid_trainer
