#include "src/optim/experiments/slow_nesterov.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

SlowNesterov::SlowNesterov(std::unique_ptr<Optimizer> other, std::vector<Parameter*> parameters,
                           const OptimizerConfig& config, const Stream& home)
    : other_(std::move(other)),
      parameters_(std::move(parameters)),
      share_at_peak_(config.slow_momentum),
      peak_rate_(config.learning_rate),
      added_(1 / static_cast<float>(config.slow_momentum_steps)) {
  for (const Parameter* parameter : parameters_) slow_.push_back(make_state(*parameter, home));
}

void SlowNesterov::set_progress(const RunProgress& progress) {
  const bool extrapolates = 3 * progress.update < 2 * progress.updates && peak_rate_ > 0;
  set_next_share(extrapolates ? share_at_peak_ * progress.scheduled_rate / peak_rate_ : 0);
}

void SlowNesterov::begin_step(const Stream& stream) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) require_state(*parameters_[i], slow_[i]);
  other_->begin_step(stream);
  ++steps_;
}

/// Computes u' = kept·u + added·(b·u − w) + added·(w + Δ). The last term is added after the update.
void SlowNesterov::update_weight(std::size_t index, float learning_rate, float gradient_scale,
                                 const Stream& stream) {
  const Parameter& parameter = *parameters_[index];
  if (is_idle() || !parameter.gradient()) {
    other_->update_weight(index, learning_rate, gradient_scale, stream);
    return;
  }
  const StagedState staged(slow_[index], {}, stream);
  const Tensor& u = staged;
  kernels::scale(u, u, kept(), stream);
  kernels::axpy(u, u, -added_, parameter.acquire_master(stream), stream);
  other_->update_weight(index, learning_rate, gradient_scale, stream);
  const UpdatedWeight weight(parameter, stream);
  kernels::axpy(u, u, added_, weight.master, stream);
  kernels::axpy(weight.master, weight.master, next_share_, u, stream);
  if (weight.compute_copy.tensor()) kernels::cast(weight.compute_copy, weight.master, stream);
}

void SlowNesterov::end_step(const Stream& stream) {
  other_->end_step(stream);
  share_ = next_share_;
}

void SlowNesterov::write_momentum_directions(const std::vector<Tensor>& directions,
                                             float learning_rate, const Stream& stream) {
  other_->write_momentum_directions(directions, learning_rate, stream);
  if (is_idle()) return;
  for (std::size_t i = 0; i < directions.size(); ++i) {
    require_state(*parameters_[i], slow_[i]);
    const StagedTensor direction(directions[i], Use::kChange, stream);
    const StagedState u(slow_[i], {}, stream, Use::kRead);
    kernels::scale(direction, direction, 1 + next_share_ * added_, stream);
    kernels::axpy(direction, direction, next_share_ * kept(), u, stream);
  }
}

void SlowNesterov::visit_state(const StateVisitor& visit) {
  other_->visit_state(visit);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    visit({parameters_[i], StateRole::kSlowMomentum, parameters_[i]->name() + ".slow"}, slow_[i]);
}

void SlowNesterov::visit_numbers(const NumberVisitor& visit) {
  double share = share_;
  visit("slow_share", share);
  share_ = static_cast<float>(share);
}

void SlowNesterov::set_steps_taken(std::int64_t steps) {
  steps_ = steps;
  other_->set_steps_taken(steps);
}

}  // namespace hybrid_trainer
