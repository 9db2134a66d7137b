#pragma once

#include <algorithm>

#include "hybrid_trainer/phases/predictor.h"

namespace hybrid_trainer {

/// Merge, then extrapolate: single weights oscillate, but their means over stretches of a run lie
/// nearly on a line, so the direction is the mean of the last whole stretch less that of the one
/// before, by update. Live weights move along it and keep their own noise: nothing is replaced by a
/// mean, whose lower loss would be that of less noise alone. Per tensor it is multiplied by how much
/// of a change was left in the next one, clip(<D2, D1>/<D1, D1>, 0, 1), as in LinearPredictor.
///
/// Memory: three tensors of the weights' size, where directions lie. Source: Extra-Merge,
/// arXiv 2605.26484.
class MergedPredictor final : public Predictor {
 public:
  /// A stretch is `steps` updates, of which every `interval`th counts.
  MergedPredictor(std::int64_t steps, std::int64_t interval)
      : interval_(interval), looks_in_stretch_(std::max<std::int64_t>(1, steps / interval)) {}
  void observe(Trainable& model) override;
  Readiness readiness() const override;
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override;
  void follow(Trainable& model, const std::vector<Tensor>& directions, double length) override;
  void save(State& state) const override;
  void load(const State& state, Trainable& model) override;

 private:
  void end_stretch(Trainable& model);
  double share_seen() const {  // of the stretch under way
    return static_cast<double>(looks_) / static_cast<double>(looks_in_stretch_);
  }

  std::int64_t interval_, looks_in_stretch_;
  std::int64_t updates_ = 0, looks_ = 0, stretches_ = 0;
  std::vector<Tensor> sum_;     // of the stretch under way, divided by a whole one's looks
  std::vector<Tensor> mean_;    // of the last whole stretch
  std::vector<Tensor> change_;  // between the last two
  std::vector<double> kept_;    // of the change before, per tensor
};

}  // namespace hybrid_trainer
