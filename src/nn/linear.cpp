#include "hybrid_trainer/nn/linear.h"

#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer {
namespace {

/// All leading dimensions as rows: (N, last).
Shape with_last(const Shape& shape, std::int64_t last) {
  Shape other;
  for (int i = 0; i + 1 < shape.rank(); ++i) other.append(shape[i]);
  other.append(last);
  return other;
}

}  // namespace

Linear::Linear(const std::string& name, std::int64_t inputs, std::int64_t outputs,
               const Stream& stream, bool has_bias)
    : weight_(name + ".weight", {outputs, inputs}, Role::kMatrix, stream) {
  if (has_bias) bias_.emplace(name + ".bias", Shape{outputs}, Role::kVector, stream);
}

Tensor Linear::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  return forward(x, Tensor{}, tape, stream);
}

Tensor Linear::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                       const Stream& stream) {
  Tensor y = product(x, residual, stream);
  tape.save({ActivationRole::kProductInput, x, true}, stream);
  return y;
}

Tensor Linear::product(const Tensor& x, const Tensor& residual, const Stream& stream) {
  Tensor y = Tensor::empty(with_last(x.shape(), weight_.shape()[0]), x.dtype(),
                           MemoryKind::kActivations, stream);
  kernels::linear_forward(y.as_rows(), x.as_rows(), weight_.acquire(x.dtype(), stream),
                          acquire_bias(stream), residual.as_rows(), stream);
  return y;
}

Tensor Linear::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor x = tape.take(stream);
  backward_parameters(dy, x, stream);
  Tensor dx = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  kernels::linear_backward_input(dx.as_rows(), dy.as_rows(), weight_.acquire(dy.dtype(), stream),
                                 stream);
  return dx;
}

void Linear::backward_parameters(const Tensor& dy, const Tensor& x, const Stream& stream) {
  GradientContribution dweight(weight_, stream);
  if (dweight.wanted()) {
    kernels::linear_backward_weight(dweight.gradient(), dy.as_rows(), x.as_rows(),
                                    dweight.next_mode(), stream);
  }
  if (!bias_) return;
  GradientContribution dbias(*bias_, stream);
  if (dbias.wanted())
    kernels::bias_backward(dbias.gradient(), dy.as_rows(), dbias.next_mode(), stream);
}

void Linear::visit_parameters(const ParameterVisitor& visit) {
  visit(weight_);
  if (bias_) visit(*bias_);
}

}  // namespace hybrid_trainer
