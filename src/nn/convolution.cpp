#include "hybrid_trainer/nn/convolution.h"

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/initialization.h"
#include "hybrid_trainer/nn/product_rounding.h"

namespace hybrid_trainer {
namespace {

/// Checks the spec before its sizes are used.
Shape weight_shape(const ModuleName& name, const Convolution::Spec& spec) {
  if (spec.rank < 1 || spec.rank > 3)
    throw ShapeMismatch(
        concat(name.here, " has ", spec.rank, " dimensions of space, want one to three"));
  if (spec.groups < 1 || spec.inputs < 1 || spec.outputs < 1 || spec.inputs % spec.groups != 0 ||
      spec.outputs % spec.groups != 0) {
    throw ShapeMismatch(concat(name.here, " has ", spec.inputs, " inputs and ", spec.outputs,
                               " outputs in ", spec.groups,
                               " groups; want groups that divide both of them"));
  }
  const std::int64_t taps = spec.window.taps(spec.rank);
  if (taps < 1)
    throw ShapeMismatch(concat(name.here, " has a kernel of ", taps, " places, want at least 1"));
  return {spec.outputs, taps * (spec.inputs / spec.groups)};
}

Shape shape_in_files(const Convolution::Spec& spec) {
  Shape shape{spec.outputs, spec.inputs / spec.groups};
  for (std::size_t i = 0; i < static_cast<std::size_t>(spec.rank); ++i)
    shape.append(spec.window.kernel[i]);
  return shape;
}

}  // namespace

Convolution::Convolution(const ModuleName& name, const Spec& spec, const Stream& stream)
    : spec_(spec), weight_(name / "weight", weight_shape(name, spec), Role::kMatrix, stream) {
  weight_.set_in_files({{.name = (name / "weight").in_files,
                         .shape = shape_in_files(spec),
                         .channels_first = true}});
  if (spec.bias) bias_.emplace(name / "bias", Shape{spec.outputs}, Role::kVector, stream);
}

void Convolution::check_input(const Tensor& x) const {
  const Shape& shape = x.shape();
  if (shape.rank() == spec_.rank + 2 && shape[shape.rank() - 1] == spec_.inputs) return;
  throw ShapeMismatch(concat(weight_.name(), ": its input is ", shape.text(), ", want (batch, ",
                             spec_.rank, " dimensions of space, ", spec_.inputs, " channels)"));
}

Tensor Convolution::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  check_input(x);
  const Pass& pass = tape.pass();
  Tensor y = Tensor::empty(output_shape(x.shape()), x.dtype(), MemoryKind::kActivations, stream);
  {
    const Weight weight = weight_.acquire(x.dtype(), stream),
                 bias = bias_ ? bias_->acquire_master(stream) : Weight{};
    kernels::convolution_forward(y, product_operand(x, Operand::kInput, weight_, pass, stream),
                                 product_operand(weight, Operand::kWeight, weight_, pass, stream),
                                 bias, spec_.window, spec_.groups, stream);
  }
  if (pass.products != nullptr) pass.products->round_result(y, stream);
  tape.save_shape(x.shape());
  tape.save({ActivationRole::kProductInput, weight_.trainable() ? x : Tensor{}, true}, stream);
  return y;
}

void Convolution::write_parameter_gradients(GradientContribution& dweight,
                                            GradientContribution& dbias, const Tensor& dy,
                                            const Tensor& product_dy, const Tensor& x,
                                            const Pass& pass, const Stream& stream) {
  if (dweight.wanted()) {
    kernels::convolution_backward_weight(dweight.gradient(), product_dy,
                                         product_operand(x, Operand::kInput, weight_, pass, stream),
                                         spec_.window, spec_.groups, dweight.next_mode(), stream);
  }
  if (dbias.wanted())
    kernels::bias_backward(dbias.gradient(), dy.as_rows(), dbias.next_mode(), stream);
}

Tensor Convolution::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  return backward(dy, true, tape, stream);
}

void Convolution::backward_parameters(const Tensor& dy, ActivationTape& tape,
                                      const Stream& stream) {
  backward(dy, false, tape, stream);
}

/// Without `wants_input` returns nothing.
Tensor Convolution::backward(const Tensor& dy, bool wants_input, ActivationTape& tape,
                             const Stream& stream) {
  const Tensor x = tape.take(stream);
  const Shape shape = tape.take_shape();
  const Pass& pass = tape.pass();
  // Complete when this returns, until when the weight is read.
  GradientContribution dweight(weight_, stream),
      dbias(bias_ ? *bias_ : weight_, stream, bias_.has_value());
  const Tensor product_dy = product_operand(dy, Operand::kGradient, weight_, pass, stream);
  write_parameter_gradients(dweight, dbias, dy, product_dy, x, pass, stream);
  if (!wants_input) return {};
  Tensor dx = Tensor::empty(shape, dy.dtype(), MemoryKind::kActivations, stream);
  const Weight weight = weight_.acquire(dy.dtype(), stream);
  kernels::convolution_backward_input(
      dx, product_dy, product_operand(weight, Operand::kWeight, weight_, pass, stream),
      spec_.window, spec_.groups, stream);
  if (pass.products != nullptr) pass.products->round_result(dx, stream);
  return dx;
}

void Convolution::visit_parameters(const ParameterVisitor& visit) {
  visit(weight_);
  if (bias_) visit(*bias_);
}

void Convolution::initialize(std::uint64_t seed, const Stream& stream) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight_.shape()[1]));
  initialize_uniform(weight_, bound, seed, stream);
  if (bias_) initialize_uniform(*bias_, bound, seed, stream);
}

TokenFlops Convolution::flops(const Shape& x) const {
  const double product = 2.0 * static_cast<double>(output_shape(x).elements() * weight_.shape()[1]);
  return {product, weight_.trainable() ? 2 * product : product};
}

double Convolution::kept_numbers(const Shape& x) const {
  return weight_.trainable() ? static_cast<double>(x.elements()) : 0;
}

}  // namespace hybrid_trainer
