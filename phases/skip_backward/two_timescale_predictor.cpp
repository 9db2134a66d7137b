#include "phases/skip_backward/two_timescale_predictor.h"

#include <cmath>

#include "phases/state_fields.h"

namespace hybrid_trainer {

double TwoTimescalePredictor::kept() const {
  return std::exp(-static_cast<double>(interval_) / static_cast<double>(steps_));
}

double TwoTimescalePredictor::updates() const {
  const std::int64_t since_first = updates_ - 1;
  const auto looks = static_cast<double>(since_first / interval_);
  const double g = kept(), factors = g * (1 - std::pow(g, looks)) / (1 - g);
  return static_cast<double>(interval_) * factors + static_cast<double>(since_first % interval_);
}

void TwoTimescalePredictor::observe(Trainable& model) {
  const bool first = updates_ == 0;
  if (updates_++ % interval_ != 0) return;
  if (mean_.empty()) mean_ = model.weights().empty_directions();
  const auto g = static_cast<float>(first ? 0 : kept());
  model.weights().add_weights(mean_, g, 1 - g);
}

Readiness TwoTimescalePredictor::readiness() const {
  return updates_ > std::max(steps_, interval_) ? Readiness::kReady : Readiness::kNotYet;
}

void TwoTimescalePredictor::write_directions(Trainable& model,
                                             const std::vector<Tensor>& directions) {
  const double slow = share_ / updates();
  model.weights().write_momentum_directions(directions);
  for (std::size_t i = 0; i < directions.size(); ++i) {
    model.weights().write_direction(directions[i], {directions[i], mean_[i]},
                                    {static_cast<float>(1 - share_), static_cast<float>(-slow)});
  }
  model.weights().add_weights(directions, 1, static_cast<float>(slow));
}

void TwoTimescalePredictor::follow(Trainable& model, const std::vector<Tensor>& directions,
                                   double length) {
  if (length == 0) return;  // times a direction that is not finite it would be no zero
  for (std::size_t i = 0; i < mean_.size(); ++i)
    model.weights().write_direction(mean_[i], {mean_[i], directions[i]},
                                    {1, static_cast<float>(length)});
}

void TwoTimescalePredictor::save(State& state) const {
  state.integers["phases.two_timescale.updates"] = updates_;
  save_tensors(state, "phases.two_timescale.mean", mean_);
}

void TwoTimescalePredictor::load(const State& state, Trainable& model) {
  updates_ = state.integer("phases.two_timescale.updates");
  if (updates_ > 0) mean_ = load_directions(state, "phases.two_timescale.mean", model);
}

}  // namespace hybrid_trainer
