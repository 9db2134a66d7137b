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
  const LinearGradients gradients(*this, dy, x, stream);
  Tensor dx = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  kernels::linear_backward_input(dx.as_rows(), dy.as_rows(), weight_.acquire(dy.dtype(), stream),
                                 stream);
  return dx;
}

LinearGradients::LinearGradients(Linear& linear, const Tensor& dy, const Tensor& x,
                                 const Stream& stream)
    : dweight_(linear.weight_, stream),
      dbias_(linear.bias_ ? *linear.bias_ : linear.weight_, stream, linear.bias_.has_value()) {
  if (dweight_.wanted()) {
    kernels::linear_backward_weight(dweight_.gradient(), dy.as_rows(), x.as_rows(),
                                    dweight_.next_mode(), stream);
  }
  if (dbias_.wanted())
    kernels::bias_backward(dbias_.gradient(), dy.as_rows(), dbias_.next_mode(), stream);
}

void Linear::visit_parameters(const ParameterVisitor& visit) {
  visit(weight_);
  if (bias_) visit(*bias_);
}

}  // namespace hybrid_trainer
