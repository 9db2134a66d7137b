#include "hybrid_trainer/nn/gradient_sink.h"

#include <exception>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

void ResidentGradients::allocate(const std::vector<Parameter*>& parameters, const Stream& stream) {
  for (const Parameter* parameter : parameters) {
    const MemoryLabel label(parameter->name());
    Tensor& gradient = gradients_[parameter];
    if (!gradient)
      gradient = Tensor::empty(parameter->shape(), DType::kF32, MemoryKind::kGradients, stream);
  }
}

GradientContribution::GradientContribution(Parameter& parameter, const Stream& stream,
                                           bool backward, DType writes)
    : parameter_(parameter),
      stream_(stream),
      gradient_(backward && parameter.trainable() ? parameter.gradient_to_write(writes, stream)
                                                  : Tensor{}),
      first_(wanted() && !parameter.gradient().defined()),
      exceptions_(std::uncaught_exceptions()) {}

GradientContribution::~GradientContribution() noexcept(false) {
  if (wanted() && std::uncaught_exceptions() == exceptions_) parameter_.contributed(stream_);
}

Tensor GradientContribution::gradient_or_scratch() const {
  if (wanted()) return gradient_;
  return Tensor::empty(parameter_.shape(), DType::kF32, MemoryKind::kWorkspace, stream_);
}

kernels::GradientMode GradientContribution::next_mode() {
  const bool overwrite = std::exchange(first_, false);
  return overwrite ? kernels::GradientMode::kOverwrite : kernels::GradientMode::kAccumulate;
}

void begin_gradients(const std::vector<Parameter*>& parameters, GradientSink& sink,
                     std::int64_t micro_batches) {
  for (Parameter* parameter : parameters) parameter->begin_gradient(sink, micro_batches);
}

void end_gradients(const std::vector<Parameter*>& parameters, const Stream& stream) {
  for (Parameter* parameter : parameters) parameter->end_gradient(stream);
}

void RoundedGradients::allocate(const std::vector<Parameter*>& parameters, const Stream& stream) {
  for (const Parameter* parameter : parameters) {
    const MemoryLabel label(parameter->name());
    Gradient& gradient = gradients_[parameter];
    gradient.wide = {};  // from an aborted step
    if (gradient.kept) continue;
    const DType dtype = parameter->role() == Role::kVector ? DType::kF32 : DType::kBF16;
    gradient.kept = Tensor::empty(parameter->shape(), dtype, MemoryKind::kGradients, stream);
  }
}

Tensor RoundedGradients::memory_for(const Parameter& parameter, bool adds, DType writes,
                                    const Stream& stream) {
  const auto found = gradients_.find(&parameter);
  if (found == gradients_.end()) return {};
  Gradient& gradient = found->second;
  if (gradient.kept.dtype() == DType::kF32) return gradient.kept;
  if (gradient.kept.dtype() == writes) {
    wait_until_read_();
    return gradient.kept;
  }
  gradient.wide = Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kGradients, stream);
  if (adds) kernels::cast(gradient.wide, gradient.kept, stream);
  return gradient.wide;
}

void RoundedGradients::contributed(const Parameter& parameter, const Stream& stream) {
  Gradient& gradient = gradients_.at(&parameter);
  if (!gradient.wide) return;
  wait_until_read_();
  kernels::cast(gradient.kept, gradient.wide, stream);
  gradient.wide = {};
}

}  // namespace hybrid_trainer
