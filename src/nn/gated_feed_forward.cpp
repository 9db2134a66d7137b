#include "hybrid_trainer/nn/gated_feed_forward.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

GatedFeedForward::GatedFeedForward(const ModuleName& name, const Spec& spec, const Stream& stream)
    : TwoProductBranch{Linear(name / "c_fc", spec.width, 2 * spec.inner_width, stream, spec.biases),
                       Linear(name / "c_proj", spec.inner_width, spec.width, stream, spec.biases)},
      gate_(spec.gate) {
  set_files(name, spec.files, {spec.inner_width, spec.inner_width});
}

KeptNumbers GatedFeedForward::kept() const {
  const auto inner = static_cast<double>(projection_.weight().shape()[1]);
  return {3 * inner, 2 * inner, 2 * inner, 2 * inner};
}

Tensor GatedFeedForward::rebuild(const Tensor& source, const Pass&, const Stream& stream) {
  Tensor active = Tensor::empty({source.size(0), source.size(1) / 2}, source.dtype(),
                                MemoryKind::kActivations, stream);
  kernels::gated_forward(active, source, gate_, stream);
  return active;
}

Tensor GatedFeedForward::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                                 const Stream& stream) {
  const Tensor wide = first_.product(x.as_rows(), Tensor{}, tape.pass(), stream);
  const Tensor active = rebuild(wide, tape.pass(), stream);
  tape.save({ActivationRole::kProductInput, first_.kept(x), true}, stream);
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
  return first_.backward(wide, tape, stream);
}

}  // namespace hybrid_trainer
