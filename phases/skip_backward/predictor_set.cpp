#include "phases/skip_backward/predictor_set.h"

#include <algorithm>

namespace hybrid_trainer {

PredictorSet::PredictorSet(const SkipBackwardConfig& config, const MakePredictor& make) {
  SkipBackwardConfig one = config;
  const auto add = [&](const std::string& name) {
    const bool known = std::any_of(members_.begin(), members_.end(),
                                   [&](const Member& member) { return member.name == name; });
    one.predictor = name;
    if (!known) members_.push_back({name, make(one)});
  };
  for (const PredictionArm& arm : config.arms) add(arm.predictor);
  if (config.arms.empty()) add(config.predictor);
}

void PredictorSet::choose(const std::string& name) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].name == name) chosen_ = i;
  }
}

void PredictorSet::observe(Trainable& model) {
  for (const Member& member : members_) member.predictor->observe(model);
}

void PredictorSet::follow(Trainable& model, const std::vector<Tensor>& directions, double length) {
  for (const Member& member : members_) member.predictor->follow(model, directions, length);
}

void PredictorSet::save(State& state) const {
  for (const Member& member : members_) member.predictor->save(state);
}

void PredictorSet::load(const State& state, Trainable& model) {
  for (const Member& member : members_) member.predictor->load(state, model);
}

}  // namespace hybrid_trainer
