#include "hybrid_trainer/nn/gated_feed_forward.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

GatedFeedForward::GatedFeedForward(const std::string& name, const BlockSpec& spec,
                                   const Stream& stream)
    : expansion_(name + ".c_fc", spec.width, 2 * spec.inner_width, stream,
                 spec.feed_forward_biases.value_or(spec.biases)),
      projection_(name + ".c_proj", spec.inner_width, spec.width, stream,
                  spec.feed_forward_biases.value_or(spec.biases)),
      gate_(spec.gate) {}

Tensor GatedFeedForward::rebuild(const Tensor& source, const Pass&, const Stream& stream) {
  Tensor active = Tensor::empty({source.size(0), source.size(1) / 2}, source.dtype(),
                                MemoryKind::kActivations, stream);
  kernels::gated_forward(active, source, gate_, stream);
  return active;
}

Tensor GatedFeedForward::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                                 const Stream& stream) {
  const Tensor wide = expansion_.product(x.as_rows(), Tensor{}, tape.pass(), stream);
  const Tensor active = rebuild(wide, tape.pass(), stream);
  tape.save({ActivationRole::kProductInput, expansion_.kept(x), true}, stream);
  tape.save({ActivationRole::kPreActivation, wide, true}, stream);
  tape.can_rebuild(active, Rebuild::kActivated, wide, *this);
  tape.save({ActivationRole::kActivated, projection_.kept(active), true}, stream);
  return projection_.product(active, residual.as_rows(), tape.pass(), stream).view(x.shape());
}

Tensor GatedFeedForward::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor active = tape.take(stream), wide = tape.take(stream), dy_rows = dy.as_rows();
  {
    const LinearGradients gradients(projection_, dy_rows, active, tape.pass(), stream);
    Tensor dactive = active;  // reuses the memory after its last read
    if (!dactive) {
      dactive = Tensor::empty({wide.size(0), wide.size(1) / 2}, wide.dtype(),
                              MemoryKind::kActivations, stream);
    }
    gradients.write_input_gradient(dactive);
    kernels::gated_backward(wide, dactive, wide, gate_, stream);
  }
  return expansion_.backward(wide, tape, stream);
}

Tensor GatedFeedForward::decode(const Tensor& x, const Tensor& residual, const DecodeTexts&,
                                BranchState*, const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  return forward(x, residual, tape, stream);
}

void GatedFeedForward::visit_parameters(const ParameterVisitor& visit) {
  expansion_.visit_parameters(visit);
  projection_.visit_parameters(visit);
}

void GatedFeedForward::visit_linears(const LinearVisitor& visit) {
  visit(expansion_);
  visit(projection_);
}

}  // namespace hybrid_trainer
