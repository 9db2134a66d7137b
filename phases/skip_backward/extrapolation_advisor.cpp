#include "phases/skip_backward/extrapolation_advisor.h"

#include "phases/experiments/model_based_planner.h"
#include "phases/experiments/prediction_bandit.h"

namespace hybrid_trainer {

std::vector<std::unique_ptr<ExtrapolationAdvisor>> make_extrapolation_advisors(
    const PhaseConfig& config) {
  std::vector<std::unique_ptr<ExtrapolationAdvisor>> advisors;
  const SkipBackwardConfig& group = config.skip_backward;
  if (!group.variants.empty()) advisors.push_back(std::make_unique<PredictionBandit>(config));
  if (group.horizon == "model_based")
    advisors.push_back(std::make_unique<ModelBasedPlanner>(config));
  return advisors;
}

}  // namespace hybrid_trainer
