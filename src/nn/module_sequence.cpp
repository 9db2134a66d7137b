#include "src/nn/module_sequence.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "src/nn/fragments.h"
#include "src/nn/token_modules.h"

namespace hybrid_trainer::graph {

ModuleSequence::ModuleSequence(const ModuleName& name, const std::vector<ModuleMaker>& makers,
                               const Shape& input, bool adds_input, const Stream& stream)
    : adds_input_(adds_input) {
  if (makers.empty()) throw ShapeMismatch(concat(name.here, " is a sequence of no modules"));
  Shape shape = input;
  for (const ModuleMaker& make : makers) {
    const ModuleName module = name / ModuleName(std::to_string(modules_.size()));
    outputs_.push_back(output_shape(make, module, shape));
    modules_.push_back(make(module, shape, stream));
    shape = outputs_.back();
  }
  if (adds_input && !(shape == input))
    throw ShapeMismatch(concat(name.here, ": its modules make ", shape.text(), " of ", input.text(),
                               ", want the same shape, as both are added"));
}

Tensor ModuleSequence::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  Tensor y = x;
  for (const auto& module : modules_) y = module->forward(y, tape, stream);
  if (!adds_input_) return y;
  // Apart from what the last module made, which the tape may hold.
  const Tensor sum = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  kernels::add(sum, x, y, stream);
  return sum;
}

/// Without `wants_gradient` the first module computes no gradient of x, and this returns nothing.
Tensor ModuleSequence::backward(Tensor dy, bool wants_gradient, ActivationTape& tape,
                                const Stream& stream) {
  for (std::size_t i = modules_.size(); i-- > 1;) dy = modules_[i]->backward(dy, tape, stream);
  if (wants_gradient) return modules_.front()->backward(dy, tape, stream);
  modules_.front()->backward_parameters(dy, tape, stream);
  return {};
}

Tensor ModuleSequence::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  if (!adds_input_) return backward(dy, true, tape, stream);
  const Tensor own = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
  copy(own, dy, stream);  // modules may overwrite it
  Tensor dx = backward(own, true, tape, stream);
  kernels::add(dx, dx, dy, stream);
  return dx;
}

void ModuleSequence::backward_parameters(const Tensor& dy, ActivationTape& tape,
                                         const Stream& stream) {
  backward(dy, false, tape, stream);
}

void ModuleSequence::visit_parameters(const ParameterVisitor& visit) {
  for (const auto& module : modules_) module->visit_parameters(visit);
}

void ModuleSequence::visit_linears(const LinearVisitor& visit) {
  for (const auto& module : modules_) module->visit_linears(visit);
}

TokenFlops ModuleSequence::flops(bool wants_gradient) {
  TokenFlops sum;
  for (std::size_t i = 0; i < modules_.size(); ++i)
    sum = sum + flops_of(*modules_[i], outputs_[i], wants_gradient || i > 0);
  return sum;
}

bool reads_tokens(const Module& module) {
  const auto* const sequence = dynamic_cast<const ModuleSequence*>(&module);
  return sequence != nullptr ? reads_tokens(sequence->first())
                             : dynamic_cast<const TokenTable*>(&module) != nullptr;
}

TokenFlops flops_of(Module& module, const Shape& output, bool wants_gradient) {
  if (auto* const sequence = dynamic_cast<ModuleSequence*>(&module))
    return sequence->flops(wants_gradient);
  if (auto* const fragments = dynamic_cast<Fragments*>(&module))
    return flops_of(fragments->module(), fragments->example(), wants_gradient);
  const auto places = static_cast<double>(output.elements() / output[output.rank() - 1]);
  TokenFlops sum;
  module.visit_parameters([&](Parameter& parameter) {
    if (parameter.role() == Role::kVector || parameter.role() == Role::kEmbedding) return;
    const double product = 2 * places * static_cast<double>(parameter.elements());
    sum.forward += product;
    sum.backward += (parameter.trainable() ? product : 0) + (wants_gradient ? product : 0);
  });
  return sum;
}

}  // namespace hybrid_trainer::graph
