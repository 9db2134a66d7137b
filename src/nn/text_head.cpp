#include "hybrid_trainer/nn/text_head.h"

namespace hybrid_trainer {

TextHead::TextHead(const Spec& spec, const Stream& stream) : spec_(spec) {
  if (spec.outputs == 0) return;
  if (spec.transform) transform_ = std::make_unique<HeadTransform>(*spec.transform, stream);
  head_ = std::make_unique<Linear>(spec.head, spec.width, spec.outputs, stream, spec.head_bias);
  remove_prefixes(*head_);
}

Tensor TextHead::output(const Tensor& hidden, const Batch& batch, ActivationTape& tape,
                        const Stream& stream) {
  const Tensor& ends = batch.at("ends");
  Tensor x =
      Tensor::empty({ends.elements(), spec_.width}, DType::kF32, MemoryKind::kActivations, stream);
  kernels::pool_texts(x, hidden, ends, spec_.pooling, stream);
  if (transform_) x = transform_->forward(x, tape, stream);
  return head_ ? head_->forward(x, tape, stream) : x;
}

Tensor TextHead::loss(const Tensor& hidden, const Batch& batch, float gradient_scale,
                      ActivationTape& tape, const Stream& stream) {
  const Tensor outputs = output(hidden, batch, tape, stream);
  Tensor loss = loss_.compute(outputs, batch, tape.keeps() ? gradient_scale : 0, stream);
  if (tape.keeps()) tape.save({ActivationRole::kLossGradient, outputs}, stream);
  return loss;
}

Tensor TextHead::backward(const Batch& batch, DType dtype, ActivationTape& tape,
                          const Stream& stream) {
  return backward(batch, tape.take(stream), dtype, tape, stream);
}

Tensor TextHead::backward(const Batch& batch, Tensor dx, DType dtype, ActivationTape& tape,
                          const Stream& stream) {
  if (head_) dx = head_->backward(dx, tape, stream);
  if (transform_) dx = transform_->backward(dx, tape, stream);
  Tensor dhidden =
      Tensor::empty({batch.tokens(), spec_.width}, dtype, MemoryKind::kActivations, stream);
  kernels::pool_texts_backward(dhidden, dx, batch.at("ends"), spec_.pooling, stream);
  return dhidden;
}

void TextHead::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                          const Stream& stream) {
  visit_linears([&](Linear& linear) {
    initialize_normal(linear.weight(), deviations.embedding, seed, stream);
  });
}

void TextHead::visit_parameters(const ParameterVisitor& visit) {
  if (transform_) transform_->visit_parameters(visit);
  if (head_) head_->visit_parameters(visit);
}

void TextHead::visit_linears(const LinearVisitor& visit) {
  if (transform_) transform_->visit_linears(visit);
  if (head_) visit(*head_);
}

bool TextHead::is_last(const Parameter& parameter) const {
  return head_ && parameter.name().starts_with(spec_.head.here + ".");
}

bool TextHead::owns(const Parameter& parameter) const {
  if (is_last(parameter)) return true;
  if (!transform_) return false;
  const HeadTransform::Spec& spec = *spec_.transform;
  return parameter.name().starts_with(spec.dense.here + ".") ||
         (spec.norm_kind && parameter.name().starts_with(spec.norm.here + "."));
}

std::vector<std::string> TextHead::parts() const {
  std::vector<std::string> parts;
  if (transform_) parts.push_back(spec_.transform->dense.here);
  if (head_) parts.push_back(spec_.head.here);
  return parts;
}

}  // namespace hybrid_trainer
