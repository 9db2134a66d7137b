#pragma once

#include <memory>

#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// A module of which only the input is saved: backward goes through its forward again. The same
/// bits, for one more forward pass. Source: Chen et al. 2016, "Training deep nets with sublinear
/// memory cost".
class CheckpointedModule final : public Module {
 public:
  explicit CheckpointedModule(std::unique_ptr<Module> module) : module_(std::move(module)) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override {
    module_->visit_parameters(visit);
  }

 private:
  std::unique_ptr<Module> module_;
};

}  // namespace hybrid_trainer
