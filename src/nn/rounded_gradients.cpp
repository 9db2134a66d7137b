#include "hybrid_trainer/nn/rounded_gradients.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

void RoundedGradients::allocate(const std::vector<Parameter*>& parameters, const Stream& stream) {
  for (const Parameter* parameter : parameters) {
    const MemoryLabel label(parameter->name());
    Gradient& gradient = gradients_[parameter];
    gradient.wide = {};  // of a step that was given up
    if (gradient.kept) continue;
    const DType dtype = parameter->role() == Role::kVector ? DType::kF32 : DType::kBF16;
    gradient.kept = Tensor::empty(parameter->shape(), dtype, MemoryKind::kGradients, stream);
  }
}

void RoundedGradients::free() {
  wait_until_read_();
  gradients_.clear();
}

Tensor RoundedGradients::gradient(const Parameter& parameter) const {
  const auto found = gradients_.find(&parameter);
  return found == gradients_.end() ? Tensor{} : found->second.kept;
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
