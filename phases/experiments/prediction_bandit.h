#pragma once

#include "phases/skip_backward/jump_advisor.h"
#include "phases/state_fields.h"

namespace hybrid_trainer {

/// Which of config.arms, a predictor and a horizon, the next prediction is made with; the gate says
/// whether there is one. The reward of an arm is what its jumps lowered the loss by in Correct's
/// paired comparison (0 where it reverted) for each Full step that they were charged.
///
/// Arms not tried yet come first, in their order; then the one with the highest
///   mean reward + s·√(2·ln n / n_arm),
/// s the size of the largest reward. All counts, sums and s fade by a tenth with each jump, as a
/// run's progress does. Nothing is drawn: equal runs choose equally. Source: UCB1, Auer,
/// Cesa-Bianchi & Fischer 2002; discounted, Garivier & Moulines 2011.
class PredictionBandit final : public JumpAdvisor {
 public:
  explicit PredictionBandit(const PhaseConfig& config);
  /// The chosen arm, with the step length as its jumps left it.
  std::optional<JumpChoice> choice() const override {
    const auto chosen = static_cast<std::size_t>(chosen_);
    return JumpChoice{arms_[chosen], step_lengths_[chosen]};
  }
  /// Ends the chosen arm's jump and chooses again.
  void see_jump(const Jump& jump) override;
  /// Why this arm: "next: merged for 8 steps, …".
  std::string explanation() const override;

  void save(State& state) const override { visit_state(*this, StateWriter{state}); }
  void load(const State& state) override { visit_state(*this, StateReader{state}); }

 private:
  /// Of the mean reward, infinite where there is none.
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

  std::vector<PredictionArm> arms_;
  std::int64_t chosen_ = 0;
  double largest_ = 0;  // reward, in size
  std::vector<double> counts_, rewards_, step_lengths_;
};

}  // namespace hybrid_trainer
