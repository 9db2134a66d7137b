#include "src/step/immediate_updates.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/profile.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

ImmediateUpdates::ImmediateUpdates(const std::vector<Parameter*>& parameters, Optimizer& optimizer,
                                   const Stream& stream)
    : parameters_(parameters), optimizer_(optimizer), stream_(stream) {
  for (std::size_t i = 0; i < parameters.size(); ++i) slots_[parameters[i]].index = i;
}

void ImmediateUpdates::begin(float learning_rate) {
  require_whole();
  for (auto& [parameter, slot] : slots_) slot = {.index = slot.index};
  learning_rate_ = learning_rate;
  is_finite_ = true;
}

Tensor ImmediateUpdates::gradient(const Parameter& parameter) const {
  Slot& slot = slots_.at(&parameter);
  if (!slot.gradient && !slot.is_complete)
    slot.gradient = Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kGradients, stream_);
  return slot.gradient;
}

void ImmediateUpdates::ready(const Parameter& parameter, const Stream& stream) {
  const StepPartTimer timer(stream, StepPart::kUpdate);
  Slot& slot = slots_.at(&parameter);
  slot.square_sum = kernels::wait_for_sum_of_squares(slot.gradient, stream);
  is_finite_ = is_finite_ && std::isfinite(slot.square_sum);
  if (is_finite_) {
    if (!is_between_) optimizer_.begin_step(stream);
    is_between_ = true;
    optimizer_.update_weight(slot.index, learning_rate_, 1.0f, stream);
  }
  slot.is_complete = true;
  slot.gradient = {};
}

double ImmediateUpdates::end() {
  double sum = 0;
  for (const Parameter* parameter : parameters_) sum += slots_.at(parameter).square_sum;
  if (!is_finite_) {
    require_whole();
  } else if (is_between_) {
    optimizer_.end_step(stream_);
    is_between_ = false;
  }
  return std::sqrt(sum);
}

void ImmediateUpdates::require_whole() const {
  if (!is_between_) return;
  throw Diverged(
      "some weights have an update that others lack, as a step ended within backward: with "
      "memory.gradients consume and divergence.max_skipped_updates 0 each comes at once; go on "
      "from "
      "the newest checkpoint");
}

}  // namespace hybrid_trainer
