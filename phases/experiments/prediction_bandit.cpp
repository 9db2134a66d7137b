#include "phases/experiments/prediction_bandit.h"

#include <numeric>

namespace hybrid_trainer {

namespace {

constexpr double kRewardDecay = 0.9;

}  // namespace

PredictionBandit::PredictionBandit(const PhaseConfig& config)
    : arms_(config.skip_backward.variants),
      counts_(arms_.size(), 0),
      rewards_(arms_.size(), 0),
      step_lengths_(arms_.size(), 1) {}

double PredictionBandit::margin(std::size_t arm) const {
  if (counts_[arm] == 0) return std::numeric_limits<double>::infinity();
  const double all = std::accumulate(counts_.begin(), counts_.end(), 0.0);
  return largest_ * std::sqrt(2 * std::log(std::max(1.0, all)) / counts_[arm]);
}

void PredictionBandit::observe_result(const Extrapolation& extrapolation) {
  for (std::vector<double>* faded : {&counts_, &rewards_}) {
    for (double& value : *faded) value *= kRewardDecay;
  }
  const auto played = static_cast<std::size_t>(chosen_);
  const double reward = extrapolation.cost > 0 ? extrapolation.paired_drop / extrapolation.cost : 0;
  counts_[played] += 1;
  rewards_[played] += reward;
  step_lengths_[played] = extrapolation.next_step_length;
  largest_ = std::max(kRewardDecay * largest_, std::abs(reward));
  std::size_t best = 0;
  for (std::size_t arm = 1; arm < arms_.size(); ++arm) {
    if (mean(arm) + margin(arm) > mean(best) + margin(best)) best = arm;
  }
  chosen_ = static_cast<std::int64_t>(best);
}

std::string PredictionBandit::explanation() const {
  const auto best = static_cast<std::size_t>(chosen_);
  const std::string what =
      concat("next: ", arms_[best].predictor, " for ", arms_[best].steps, " steps, ");
  if (counts_[best] == 0) return what + "not tried yet";
  return concat(what, "its loss falls by ", brief(mean(best)), " for a Full step's cost, +- ",
                brief(margin(best)));
}

}  // namespace hybrid_trainer
