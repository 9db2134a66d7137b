#pragma once

#include "hybrid_trainer/phases/predictor.h"

namespace hybrid_trainer {

/// Momentum on two timescales: (1 − share) times what the optimizer's own moments would do next,
/// and share times an exponential mean of past weight changes with a time constant of `steps`
/// updates, which noise and oscillations leave.
///
/// That mean needs one tensor of the weights' size, where directions lie: an exponential mean e of
/// the weights themselves, taken every `interval` updates with g = exp(−interval/steps), since
/// w − e = Σ g^j·(change over the interval j looks ago). Divided by the sum of its factors, in
/// updates, it is exact on a straight path. Source of the two timescales: AdEMAMix, Pagliardini,
/// Ablin & Grangier 2024.
class TwoTimescalePredictor final : public Predictor {
 public:
  TwoTimescalePredictor(std::int64_t steps, std::int64_t interval, double share)
      : steps_(steps), interval_(interval), share_(share) {}
  void observe(Trainable& model) override;
  Readiness readiness() const override;
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override;
  void follow(Trainable& model, const std::vector<Tensor>& directions, double length) override;
  void save(State& state) const override;
  void load(const State& state, Trainable& model) override;

 private:
  double kept() const;     // g
  double updates() const;  // that w − e is the change of

  std::int64_t steps_, interval_;
  double share_;
  std::int64_t updates_ = 0;
  std::vector<Tensor> mean_;
};

}  // namespace hybrid_trainer
