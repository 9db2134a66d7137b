#pragma once

#include "hybrid_trainer/phases/predictor.h"

namespace hybrid_trainer {

/// Least-squares extrapolation of the recent weight path.
///
/// Every `interval` updates it stores the weight change since the last time; from three consecutive
/// changes D1, D2, D3 the slope per step that best fits the four points of each weight is (0.3·D1 +
/// 0.4·D2 + 0.3·D3)/interval. Per tensor it is multiplied by how much of a change remains two
/// intervals later, clip(<D3, D1>/<D1, D1>, 0, 1): a first-order autoregression fitted on the path
/// itself, which is near 0 where the path is noise.
///
/// Memory: four tensors of the weights' size, taken at the first update it sees.
class LinearPredictor : public Predictor {
 public:
  explicit LinearPredictor(std::int64_t interval) : interval_(interval) {}
  void observe(Trainable& model) override;
  Readiness readiness() const override;
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override;
  /// Forgets all: a path with a jump in it is no straight one.
  void follow(Trainable&, const std::vector<Tensor>&, double) override {
    *this = LinearPredictor(interval_);
  }
  void save(State& state) const override;
  void load(const State& state, Trainable& model) override;

 private:
  static constexpr std::size_t kChanges = 3;
  std::int64_t interval_;
  std::int64_t updates_ = 0;               // since the first that was seen
  std::vector<Tensor> last_weights_;       // at the last multiple of the interval
  std::vector<Tensor> changes_[kChanges];  // oldest first
};

}  // namespace hybrid_trainer
