#include "hybrid_trainer/nn/feed_forward.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

FeedForward::FeedForward(const std::string& name, const BlockSpec& spec, const Stream& stream)
    : expansion_(name + ".c_fc", spec.width, spec.inner_width, stream,
                 spec.feed_forward_biases.value_or(spec.biases)),
      projection_(name + ".c_proj", spec.inner_width, spec.width, stream,
                  spec.feed_forward_biases.value_or(spec.biases)) {}

Tensor FeedForward::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                            const Stream& stream) {
  const Shape wide_shape{x.elements() / x.size(x.shape().rank() - 1),
                         expansion_.weight().shape()[0]};
  const Tensor active = Tensor::empty(wide_shape, x.dtype(), MemoryKind::kActivations, stream);
  Tensor pre_activation;
  if (tape.keeps() && expansion_.adapter() == nullptr)
    pre_activation = Tensor::empty_like(active, MemoryKind::kActivations, stream);
  if (expansion_.adapter() == nullptr) {
    kernels::linear_gelu_forward(active, pre_activation, x.as_rows(),
                                 expansion_.weight().acquire(x.dtype(), stream),
                                 expansion_.acquire_bias(stream), stream);
  } else {
    pre_activation = expansion_.product(x.as_rows(), Tensor{}, tape.pass(), stream);
    kernels::gelu_forward(active, pre_activation, stream);
  }
  tape.save({ActivationRole::kProductInput, expansion_.kept(x), true}, stream);
  tape.save({ActivationRole::kPreActivation, pre_activation, true}, stream);
  tape.can_rebuild(active, Rebuild::kActivated, pre_activation, *this);
  tape.save({ActivationRole::kActivated, projection_.kept(active), true}, stream);
  return projection_.product(active, residual.as_rows(), tape.pass(), stream).view(x.shape());
}

Tensor FeedForward::rebuild(const Tensor& source, const Pass&, const Stream& stream) {
  Tensor active = Tensor::empty_like(source, MemoryKind::kActivations, stream);
  kernels::gelu_forward(active, source, stream);
  return active;
}

Tensor FeedForward::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor active = tape.take(stream), pre_activation = tape.take(stream),
               dy_rows = dy.as_rows();
  const Tensor dpre_activation =  // reuses the memory after its last read
      active ? active : Tensor::empty_like(pre_activation, MemoryKind::kActivations, stream);
  {
    const LinearGradients gradients(projection_, dy_rows, active, tape.pass(), stream);
    if (projection_.adapter() == nullptr) {
      kernels::linear_gelu_backward_input(dpre_activation, dy_rows,
                                          projection_.weight().acquire(dy.dtype(), stream),
                                          pre_activation, stream);
    } else {
      gradients.write_input_gradient(dpre_activation);
      kernels::gelu_backward(dpre_activation, dpre_activation, pre_activation, stream);
    }
  }
  return expansion_.backward(dpre_activation, tape, stream);
}

Tensor FeedForward::decode(const Tensor& x, const Tensor& residual, const DecodeTexts&,
                           BranchState*, const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  return forward(x, residual, tape, stream);
}

void FeedForward::visit_parameters(const ParameterVisitor& visit) {
  expansion_.visit_parameters(visit);
  projection_.visit_parameters(visit);
}

void FeedForward::visit_linears(const LinearVisitor& visit) {
  visit(expansion_);
  visit(projection_);
}

}  // namespace hybrid_trainer
