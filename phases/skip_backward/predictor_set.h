#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/phases/predictor.h"

namespace hybrid_trainer {

using MakePredictor = std::function<std::unique_ptr<Predictor>(const SkipBackwardConfig&)>;

/// The predictors that a config names, each once: all see every update and every jump, and one
/// gives the directions.
class PredictorSet {
 public:
  /// Those of config.arms, or config.predictor alone. Throws ConfigError for an unknown name.
  PredictorSet(const SkipBackwardConfig& config, const MakePredictor& make);
  void choose(const std::string& name);
  Predictor& chosen() { return *members_[chosen_].predictor; }
  const std::string& name() const { return members_[chosen_].name; }

  void observe(Trainable& model);
  void follow(Trainable& model, const std::vector<Tensor>& directions, double length);
  void save(State& state) const;
  void load(const State& state, Trainable& model);

 private:
  struct Member {
    std::string name;
    std::unique_ptr<Predictor> predictor;
  };
  std::vector<Member> members_;
  std::size_t chosen_ = 0;
};

}  // namespace hybrid_trainer
