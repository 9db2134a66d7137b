#include "src/optim/momentum_optimizer.h"

namespace hybrid_trainer {

MomentumOptimizer::MomentumOptimizer(std::vector<Parameter*> parameters, bool keeps_momentum,
                                     const StateHome& home, std::int64_t state_bits)
    : parameters_(std::move(parameters)), keeps_momentum_(keeps_momentum), copies_(home.copies) {
  for (const Parameter* parameter : parameters_)
    moments_.push_back(keeps_momentum ? make_moment(*parameter, state_bits, home.stream)
                                      : Moment{});
}

void MomentumOptimizer::require_moments() const {
  for (std::size_t i = 0; i < moments_.size() && keeps_momentum_; ++i)
    require_state(*parameters_[i], moments_[i]);
}

void MomentumOptimizer::begin_step(const Stream&) {
  require_moments();
  ++steps_;
}

void MomentumOptimizer::update_weight(std::size_t index, float learning_rate, float gradient_scale,
                                      const Stream& stream) {
  const Tensor given = parameters_[index]->gradient();
  if (!given) return;
  const StagedTensor gradient(given, Use::kRead, stream);
  const StagedMoment m(moments_[index], copies_, stream);
  update({parameters_[index], m.values, m.scales}, gradient, learning_rate, gradient_scale, stream);
}

void MomentumOptimizer::write_momentum_directions(const std::vector<Tensor>& directions,
                                                  float learning_rate, const Stream& stream) {
  require_directions(directions, parameters_);
  require_moments();
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    if (parameters_[i]->elements() == 0) continue;
    const StagedTensor direction(directions[i], Use::kWrite, stream);
    if (!keeps_momentum_) {
      fill_zero(direction, stream);
      continue;
    }
    const StagedMoment m(moments_[i], copies_, stream, Use::kRead);
    write_direction(direction, {parameters_[i], m.values, m.scales}, learning_rate, stream);
  }
}

void MomentumOptimizer::visit_state(const StateVisitor& visit) {
  for (std::size_t i = 0; i < moments_.size() && keeps_momentum_; ++i)
    visit_moment({parameters_[i], StateRole::kMomentum, parameters_[i]->name() + ".m"}, moments_[i],
                 visit);
}

}  // namespace hybrid_trainer
