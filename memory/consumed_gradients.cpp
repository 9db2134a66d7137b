#include "hybrid_trainer/memory/consumed_gradients.h"

#include <utility>

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

Tensor ConsumedGradients::gradient(const Parameter& parameter) const {
  Tensor& gradient = gradients_[&parameter];
  if (!gradient)
    gradient = Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kGradients, stream_);
  return gradient;
}

Tensor ConsumedGradients::memory_for(const Parameter& parameter, bool, DType, const Stream&) {
  Tensor& away = away_[&parameter];
  if (!away) away = Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kGradients, home_);
  return gradient(parameter);
}

void ConsumedGradients::ready(const Parameter& parameter, const Stream& stream) {
  Tensor& gradient = gradients_.at(&parameter);
  copy_or_wait(away_.at(&parameter), gradient, stream);
  gradient = std::exchange(away_.at(&parameter), {});
}

}  // namespace hybrid_trainer
