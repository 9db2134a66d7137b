#pragma once

#include "hybrid_trainer/kernels/pooling.h"
#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

// Modules without parameters over one to three dimensions of space, channels last.

/// The mean of each window: (B, D1..Dn, C) to (B, O1..On, C).
class MeanPooling final : public Module {
 public:
  explicit MeanPooling(const kernels::Window& window,
                       kernels::Divisor divisor = kernels::Divisor::kWindow)
      : window_(window), divisor_(divisor) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}

 private:
  kernels::Window window_;
  kernels::Divisor divisor_;
};

/// The largest of each window, whose place is kept for backward, an i32 for each number of y.
class MaxPooling final : public Module {
 public:
  explicit MaxPooling(const kernels::Window& window) : window_(window) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}

 private:
  kernels::Window window_;
};

/// The mean over all places: (B, D1..Dn, C) to (B, C).
class MeanOfPlaces final : public Module {
 public:
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}
};

}  // namespace hybrid_trainer
