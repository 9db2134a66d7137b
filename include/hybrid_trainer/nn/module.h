#pragma once

#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

class Linear;
using LinearVisitor = std::function<void(Linear&)>;

/// A differentiable function with parameters. backward takes the tensors that forward saved.
class Module {
 public:
  virtual ~Module() = default;
  virtual Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) = 0;
  /// Returns the gradient of x, and adds to the gradients of the parameters.
  virtual Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) = 0;
  /// Runs backward without computing the gradient of x, for modules whose input is data.
  virtual void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
    backward(dy, tape, stream);
  }
  virtual void visit_parameters(const ParameterVisitor& visit) = 0;
  /// Visits the linear maps that may get adapters; by default none.
  virtual void visit_linears(const LinearVisitor&) {}
};

/// A normalization at the entry of a branch.
class Norm : public Module {
 public:
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) final {
    Tensor dx = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
    write_backward(dx, kernels::GradientMode::kOverwrite, dy, tape, stream);
    return dx;
  }
  /// Adds the gradient of x to dx, the gradient of the residual stream.
  void backward_onto(const Tensor& dx, const Tensor& dy, ActivationTape& tape,
                     const Stream& stream) {
    write_backward(dx, kernels::GradientMode::kAccumulate, dy, tape, stream);
  }

 private:
  virtual void write_backward(const Tensor& dx, kernels::GradientMode mode, const Tensor& dy,
                              ActivationTape& tape, const Stream& stream) = 0;
};

/// Activation checkpointing: saves only the input, and backward reruns forward. Bit-identical.
/// Source: Chen et al. 2016, "Training deep nets with sublinear memory cost".
class CheckpointedModule final : public Module {
 public:
  explicit CheckpointedModule(Module& module) : module_(module) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override {
    ForwardOnlyTape none(tape.pass());
    Tensor y = module_.forward(x, none, stream);
    tape.save({ActivationRole::kBlockInput, x}, stream);
    return y;
  }
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override {
    const Tensor x = tape.take(stream);
    PlainTape inner(tape.pass(), Rebuild::kNormalized);
    module_.forward(x, inner, stream);
    return module_.backward(dy, inner, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override { module_.visit_parameters(visit); }
  void visit_linears(const LinearVisitor& visit) override { module_.visit_linears(visit); }

 private:
  Module& module_;
};

}  // namespace hybrid_trainer
