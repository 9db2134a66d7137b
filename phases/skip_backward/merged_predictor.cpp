#include "phases/skip_backward/merged_predictor.h"

#include <algorithm>
#include <utility>

#include "phases/state_fields.h"

namespace hybrid_trainer {

void MergedPredictor::observe(Trainable& model) {
  if (updates_++ % interval_ != 0) return;
  for (auto* kept : {&sum_, &mean_, &change_}) {
    if (kept->empty()) *kept = model.weights().empty_directions();
  }
  const float share = 1.0f / static_cast<float>(looks_in_stretch_);
  model.weights().add_weights(sum_, looks_ == 0 ? 0.0f : 1.0f, share);
  if (++looks_ == looks_in_stretch_) end_stretch(model);
}

/// The oldest tensors are written to next: three are enough.
void MergedPredictor::end_stretch(Trainable& model) {
  looks_ = 0;
  ++stretches_;
  if (stretches_ >= 2) {
    kept_.assign(sum_.size(), 1.0);
    for (std::size_t i = 0; i < sum_.size(); ++i) {
      model.weights().write_direction(mean_[i], {mean_[i], sum_[i]}, {-1.0f, 1.0f});
      if (stretches_ == 2) continue;
      const double size = model.weights().wait_for_dot(change_[i], change_[i]);
      const double left = size > 0 ? model.weights().wait_for_dot(mean_[i], change_[i]) / size : 0;
      kept_[i] = std::clamp(left, 0.0, 1.0);
    }
    std::swap(mean_, change_);
  }
  std::swap(sum_, mean_);
}

Readiness MergedPredictor::readiness() const {
  return stretches_ >= 3 ? Readiness::kReady : Readiness::kNotYet;
}

void MergedPredictor::write_directions(Trainable& model, const std::vector<Tensor>& directions) {
  const auto updates = static_cast<double>(looks_in_stretch_ * interval_);
  for (std::size_t i = 0; i < directions.size(); ++i)
    model.weights().write_direction(directions[i], {change_[i]},
                                    {static_cast<float>(kept_[i] / updates)});
}

void MergedPredictor::follow(Trainable& model, const std::vector<Tensor>& directions,
                             double length) {
  if (length == 0) return;  // times a direction that is not finite it would be no zero
  const auto move = [&](const std::vector<Tensor>& kept, double by) {
    for (std::size_t i = 0; i < kept.size(); ++i)
      model.weights().write_direction(kept[i], {kept[i], directions[i]},
                                      {1.0f, static_cast<float>(by)});
  };
  if (looks_ > 0) move(sum_, length * share_seen());
  if (stretches_ > 0) move(mean_, length);
}

void MergedPredictor::save(State& state) const {
  state.integers["phases.merged.updates"] = updates_;
  state.integers["phases.merged.looks"] = looks_;
  state.integers["phases.merged.stretches"] = stretches_;
  state.series["phases.merged.kept"] = kept_;
  const auto save_if = [&](bool written, const char* name, const std::vector<Tensor>& tensors) {
    save_tensors(state, name, written ? tensors : std::vector<Tensor>());
  };
  save_if(looks_ > 0, "phases.merged.sum", sum_);
  save_if(stretches_ > 0, "phases.merged.mean", mean_);
  save_if(stretches_ > 1, "phases.merged.change", change_);
}

void MergedPredictor::load(const State& state, Trainable& model) {
  updates_ = state.integer("phases.merged.updates");
  looks_ = state.integer("phases.merged.looks");
  stretches_ = state.integer("phases.merged.stretches");
  kept_ = state.reals_of("phases.merged.kept");
  if (updates_ == 0) return;
  sum_ = load_directions(state, "phases.merged.sum", model);
  mean_ = load_directions(state, "phases.merged.mean", model);
  change_ = load_directions(state, "phases.merged.change", model);
}

}  // namespace hybrid_trainer
