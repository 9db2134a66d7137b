#include "momentum_optimizer.h"

namespace hybrid_trainer {

MomentumOptimizer::MomentumOptimizer(std::vector<Parameter*> parameters, bool keeps_momentum,
                                     const Stream& home)
    : parameters_(std::move(parameters)), keeps_momentum_(keeps_momentum), home_(home.pool()) {
  for (Parameter* parameter : parameters_)
    slots_.push_back({parameter, keeps_momentum ? make_state(*parameter, home) : Tensor{}});
}

void MomentumOptimizer::step(float learning_rate, float gradient_scale, const Stream& stream) {
  for (const Slot& slot : slots_) {
    if (keeps_momentum_) require_state(*slot.parameter, slot.m);
  }
  ++steps_;
  for (const Slot& slot : slots_) {
    const Tensor given = slot.parameter->gradient();
    if (!given) continue;
    const StagedTensor gradient(given, Use::kRead, stream);
    const StagedState m(slot.m, home_, stream);
    update({slot.parameter, m}, gradient, learning_rate, gradient_scale, stream);
  }
}

void MomentumOptimizer::write_momentum_directions(const std::vector<Tensor>& directions,
                                                  float learning_rate, const Stream& stream) {
  require_directions(directions, parameters_);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const StagedTensor direction(directions[i], Use::kWrite, stream);
    if (!keeps_momentum_) {
      fill_zero(direction, stream);
      continue;
    }
    require_state(*slots_[i].parameter, slots_[i].m);
    const StagedState m(slots_[i].m, home_, stream, Use::kRead);
    write_direction(direction, {slots_[i].parameter, m}, learning_rate, stream);
  }
}

void MomentumOptimizer::visit_state(const StateVisitor& visit) {
  if (!keeps_momentum_) return;
  for (Slot& slot : slots_) visit(slot.parameter->name() + ".m", slot.m);
}

}  // namespace hybrid_trainer
