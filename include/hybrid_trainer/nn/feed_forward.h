#pragma once

#include "hybrid_trainer/nn/linear.h"

namespace hybrid_trainer {

/// The two-layer perceptron of GPT-2: y = residual + c_proj(gelu(c_fc(x))), 4·C wide inside.
class FeedForward {
 public:
  FeedForward(const std::string& name, std::int64_t width, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream);
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit);
  Linear& projection() { return projection_; }

 private:
  Linear expansion_, projection_;
};

}  // namespace hybrid_trainer
