#pragma once

#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// A view of a module of which only the input is saved: backward goes through its forward again.
/// The same bits, for one more forward pass. Source: Chen et al. 2016, "Training deep nets with
/// sublinear memory cost".
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
