#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/nn/graph_part.h"

namespace hybrid_trainer::graph {

/// Modules one after the other, "<name>.0", "<name>.1", … Where `adds_input`, y is their result plus x.
class ModuleSequence final : public Module {
 public:
  ModuleSequence(const ModuleName& name, const std::vector<ModuleMaker>& makers, const Shape& input,
                 bool adds_input, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;
  /// Of one example.
  TokenFlops flops(bool wants_gradient);
  const Module& first() const { return *modules_.front(); }

 private:
  Tensor backward(Tensor dy, bool wants_gradient, ActivationTape& tape, const Stream& stream);
  bool adds_input_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<Shape> outputs_;  // of each, for one example
};

/// Whether x is i32, as that of a table; else it is activations.
bool reads_tokens(const Module& module);

/// Of one example, from whose input the module makes `output`: two for each weight of a matrix and place,
/// and as many for each gradient.
TokenFlops flops_of(Module& module, const Shape& output, bool wants_gradient);

}  // namespace hybrid_trainer::graph
