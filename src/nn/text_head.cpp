#include "hybrid_trainer/nn/text_head.h"

#include <ranges>

namespace hybrid_trainer {

TextHead::TextHead(const Spec& spec, const Stream& stream) : spec_(spec) {
  if (spec.outputs == 0) {
    for (const HeadTransform::Spec& layer : spec.dense)
      transforms_.push_back(std::make_unique<HeadTransform>(layer, stream));
    return;
  }
  if (spec.transform)
    transforms_.push_back(std::make_unique<HeadTransform>(*spec.transform, stream));
  head_ = std::make_unique<Linear>(spec.head, spec.width, spec.outputs, stream, spec.head_bias);
  remove_prefixes(*head_);
}

std::int64_t TextHead::outputs() const {
  if (head_) return spec_.outputs;
  return transforms_.empty() ? spec_.width : spec_.dense.back().outputs;
}

Tensor TextHead::output(const Tensor& hidden, const Batch& batch, ActivationTape& tape,
                        const Stream& stream) {
  const Tensor& ends = batch.at("ends");
  Tensor x =
      Tensor::empty({ends.elements(), spec_.width}, DType::kF32, MemoryKind::kActivations, stream);
  kernels::pool_texts(x, hidden, ends, spec_.pooling, stream);
  for (const auto& transform : transforms_) x = transform->forward(x, tape, stream);
  return head_ ? head_->forward(x, tape, stream) : x;
}

Tensor TextHead::loss(const Tensor& hidden, const Batch& batch, float gradient_scale,
                      ActivationTape& tape, const Stream& stream) {
  Tensor outputs = output(hidden, batch, tape, stream);
  if (tape.keeps() && !head_ && !transforms_.empty()) {
    // The loss overwrites its input, which the last transform may have saved.
    const Tensor saved = outputs;
    outputs = Tensor::empty_like(saved, MemoryKind::kActivations, stream);
    copy(outputs, saved, stream);
  }
  Tensor loss = loss_.compute(outputs, batch, tape.keeps() ? gradient_scale : 0, stream);
  if (tape.keeps()) tape.save({ActivationRole::kLossGradient, outputs}, stream);
  return loss;
}

Tensor TextHead::backward(const Batch& batch, DType dtype, ActivationTape& tape,
                          const Stream& stream) {
  Tensor dx = tape.take(stream);
  if (head_) dx = head_->backward(dx, tape, stream);
  for (const auto& transform : std::views::reverse(transforms_))
    dx = transform->backward(dx, tape, stream);
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
  for (const auto& transform : transforms_) transform->visit_parameters(visit);
  if (head_) head_->visit_parameters(visit);
}

void TextHead::visit_linears(const LinearVisitor& visit) {
  for (const auto& transform : transforms_) transform->visit_linears(visit);
  if (head_) visit(*head_);
}

bool TextHead::is_last(const Parameter& parameter) const {
  return head_ && parameter.name().starts_with(spec_.head.here + ".");
}

bool TextHead::owns(const Parameter& parameter) const {
  if (is_last(parameter)) return true;
  bool is_one = false;
  for (const auto& transform : transforms_)
    transform->visit_parameters(
        [&](const Parameter& own) { is_one = is_one || own.name() == parameter.name(); });
  return is_one;
}

std::vector<std::string> TextHead::parts() const {
  std::vector<std::string> parts;
  if (head_ && spec_.transform) parts.push_back(spec_.transform->dense.here);
  for (std::size_t i = 0; !head_ && i < transforms_.size(); ++i)
    parts.push_back(spec_.dense[i].dense.here);
  if (head_) parts.push_back(spec_.head.here);
  return parts;
}

}  // namespace hybrid_trainer
