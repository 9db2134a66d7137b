#include "hybrid_trainer/nn/feed_forward.h"

namespace hybrid_trainer {

FeedForward::FeedForward(const ModuleName& name, const Spec& spec, const Stream& stream)
    : TwoProductBranch{Linear(name / "c_fc", spec.width, spec.intermediate_size, stream,
                              spec.biases),
                       Linear(name / "c_proj", spec.intermediate_size, spec.width, stream,
                              spec.biases),
                       Rebuild::kActivated},
      exact_gelu_(spec.exact_gelu) {
  set_files(name, spec.files, {});
}

Tensor FeedForward::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                            const Stream& stream) {
  const Shape wide_shape{x.elements() / x.size(x.shape().rank() - 1), first_.weight().shape()[0]};
  const Tensor active = Tensor::empty(wide_shape, x.dtype(), MemoryKind::kActivations, stream);
  Tensor pre_activation;
  const bool is_fused = !exact_gelu_ && first_.is_one_product(tape.pass());
  if (tape.keeps() && is_fused)
    pre_activation = Tensor::empty_like(active, MemoryKind::kActivations, stream);
  if (is_fused) {
    kernels::linear_gelu_forward(active, pre_activation, x.as_rows(),
                                 first_.weight().acquire(x.dtype(), stream),
                                 first_.acquire_bias(stream), stream);
  } else {
    pre_activation = first_.product(x.as_rows(), Tensor{}, tape.pass(), stream);
    active_of(active, pre_activation, stream);
  }
  tape.save({ActivationRole::kProductInput, first_.kept(x), true}, stream);
  tape.save({ActivationRole::kPreActivation, pre_activation, true}, stream);
  tape.declare_rebuildable(active, Rebuild::kActivated, pre_activation, *this);
  tape.save({ActivationRole::kActivated, projection_.kept(active), true}, stream);
  return projection_.product(active, residual.as_rows(), tape.pass(), stream).view(x.shape());
}

Tensor FeedForward::rebuild(const Tensor& source, const Pass&, const Stream& stream) {
  Tensor active = Tensor::empty_like(source, MemoryKind::kActivations, stream);
  active_of(active, source, stream);
  return active;
}

void FeedForward::active_of(const Tensor& active, const Tensor& x, const Stream& stream) const {
  if (!exact_gelu_) return kernels::gelu_forward(active, x, stream);
  kernels::activation_forward(active, x, kernels::ActivationKind::kGelu, stream);
}

Tensor FeedForward::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor active = tape.take(stream), pre_activation = tape.take(stream),
               dy_rows = dy.as_rows();
  const Tensor dpre_activation =  // reuses the memory after its last read
      active ? active : Tensor::empty_like(pre_activation, MemoryKind::kActivations, stream);
  {
    const LinearGradients gradients(projection_, dy_rows, active, tape.pass(), stream);
    if (!exact_gelu_ && projection_.is_one_product(tape.pass())) {
      kernels::linear_gelu_backward_input(dpre_activation, dy_rows,
                                          projection_.weight().acquire(dy.dtype(), stream),
                                          pre_activation, stream);
    } else {
      gradients.write_input_gradient(dpre_activation);
      if (exact_gelu_) {
        kernels::activation_backward(dpre_activation, dpre_activation, pre_activation,
                                     kernels::ActivationKind::kGelu, stream);
      } else {
        kernels::gelu_backward(dpre_activation, dpre_activation, pre_activation, stream);
      }
    }
  }
  return first_.backward(dpre_activation, tape, stream);
}

GatedFeedForward::GatedFeedForward(const ModuleName& name, const Spec& spec, const Stream& stream)
    : TwoProductBranch{Linear(name / "c_fc", spec.width, 2 * spec.intermediate_size, stream,
                              spec.biases),
                       Linear(name / "c_proj", spec.intermediate_size, spec.width, stream,
                              spec.biases),
                       Rebuild::kActivated},
      gate_(spec.gate) {
  set_files(name, spec.files, {spec.intermediate_size, spec.intermediate_size});
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
  tape.declare_rebuildable(active, Rebuild::kActivated, wide, *this);
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
