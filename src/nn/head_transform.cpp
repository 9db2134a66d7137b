#include "hybrid_trainer/nn/head_transform.h"

namespace hybrid_trainer {

namespace {

kernels::ActivationKind kind_of(HeadTransform::Activation activation) {
  return activation == HeadTransform::Activation::kRelu ? kernels::ActivationKind::kRelu
                                                        : kernels::ActivationKind::kGelu;
}

}  // namespace

void remove_prefixes(Module& module) {
  module.visit_parameters([](Parameter& parameter) {
    std::vector<FileTensor> in_files = parameter.in_files();
    for (FileTensor& tensor : in_files) tensor.prefixed = false;
    parameter.set_in_files(std::move(in_files));
  });
}

HeadTransform::HeadTransform(const Spec& spec, const Stream& stream)
    : dense_(spec.dense, spec.width, spec.outputs > 0 ? spec.outputs : spec.width, stream,
             spec.bias),
      activation_(spec.activation),
      norm_(spec.norm_kind
                ? make_norm(spec.norm, dense_.weight().shape()[0], *spec.norm_kind, stream)
                : nullptr) {
  if (!spec.prefixed) remove_prefixes(*this);
}

Tensor HeadTransform::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const Tensor pre_activation = dense_.forward(x, tape, stream);
  const bool is_linear = activation_ == Activation::kNone;
  const Tensor active = is_linear
                            ? pre_activation
                            : Tensor::empty_like(pre_activation, MemoryKind::kActivations, stream);
  if (activation_ == Activation::kTanh) {
    kernels::cap_forward(active, pre_activation, 1, stream);
    tape.save({ActivationRole::kActivated, active}, stream);
  } else if (!is_linear) {
    kernels::activation_forward(active, pre_activation, kind_of(activation_), stream);
    tape.save({ActivationRole::kPreActivation, pre_activation, true}, stream);
  }
  return norm_ ? norm_->forward(active, tape, stream) : active;
}

Tensor HeadTransform::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor dactive = norm_ ? norm_->backward(dy, tape, stream) : dy;
  if (activation_ == Activation::kNone) return dense_.backward(dactive, tape, stream);
  const Tensor saved = tape.take(stream);
  if (activation_ == Activation::kTanh) {
    kernels::cap_backward(dactive, dactive, saved, 1, stream);
  } else {
    kernels::activation_backward(dactive, dactive, saved, kind_of(activation_), stream);
  }
  return dense_.backward(dactive, tape, stream);
}

}  // namespace hybrid_trainer
