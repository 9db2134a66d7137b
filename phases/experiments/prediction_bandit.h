#pragma once

#include "phases/skip_backward/extrapolation_advisor.h"
#include "phases/state_fields.h"

namespace hybrid_trainer {

/// Chooses the next arm, a predictor and horizon of config.variants. The reward of a prediction is
/// its loss decrease in Correct (0 if reverted), divided by its cost in Full steps. Tries each arm
/// once, in order; then chooses the arm with the highest
///   mean reward + s·√(2·ln n / n_arm),
/// with s the magnitude of the largest reward. All counts, sums and s decay by a tenth per
/// prediction, because a run's progress slows down. Deterministic. Source: UCB1, Auer, Cesa-Bianchi
/// & Fischer 2002; discounted, Garivier & Moulines 2011.
class PredictionBandit final : public ExtrapolationAdvisor {
 public:
  explicit PredictionBandit(const PhaseConfig& config);
  std::optional<ExtrapolationChoice> choice() const override {
    const auto chosen = static_cast<std::size_t>(chosen_);
    return ExtrapolationChoice{arms_[chosen], step_lengths_[chosen]};
  }
  void observe_result(const Extrapolation& extrapolation) override;
  /// Explains the choice, for example "next: merged for 8 steps, …".
  std::string explanation() const override;

  void save(State& state) const override { visit_state(*this, StateWriter{state}); }
  void load(const State& state) override { visit_state(*this, StateReader{state}); }

 private:
  double margin(std::size_t arm) const;
  double mean(std::size_t arm) const { return counts_[arm] > 0 ? rewards_[arm] / counts_[arm] : 0; }

  template <class Self, class Visit>
  static void visit_state(Self& self, const Visit& visit) {
    visit("phases.bandit.chosen", self.chosen_);
    visit("phases.bandit.largest", self.largest_);
    visit("phases.bandit.counts", self.counts_);
    visit("phases.bandit.rewards", self.rewards_);
    visit("phases.bandit.step_lengths", self.step_lengths_);
  }

  std::vector<PredictionVariant> arms_;
  std::int64_t chosen_ = 0;
  double largest_ = 0;  // largest magnitude of a reward
  std::vector<double> counts_, rewards_, step_lengths_;
};

}  // namespace hybrid_trainer
