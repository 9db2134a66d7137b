#include "hybrid_trainer/memory/consumed_gradients.h"

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

Tensor ConsumedGradients::gradient(const Parameter& parameter) const {
  Tensor& gradient = gradients_[&parameter];
  if (!gradient)
    gradient = Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kGradients, stream_);
  return gradient;
}

void ConsumedGradients::ready(const Parameter& parameter, const Stream& stream) {
  Tensor& gradient = gradients_.at(&parameter);
  const Tensor away = Tensor::empty_like(gradient, MemoryKind::kGradients, home_);
  copy_or_wait(away, gradient, stream);
  gradient = away;
}

}  // namespace hybrid_trainer
