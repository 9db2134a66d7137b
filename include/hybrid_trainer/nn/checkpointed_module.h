#pragma once

#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// A view of a module of which only the input is saved: backward goes through its forward again.
/// The same bits, for one more forward pass. Source: Chen et al. 2016, "Training deep nets with
/// sublinear memory cost".
class CheckpointedModule final : public Module {
 public:
  explicit CheckpointedModule(Module& module) : module_(module) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override { module_.visit_parameters(visit); }

 private:
  Module& module_;
};

}  // namespace hybrid_trainer
