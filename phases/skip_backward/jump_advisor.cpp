#include "phases/skip_backward/jump_advisor.h"

#include "phases/experiments/jump_planner.h"
#include "phases/experiments/prediction_bandit.h"

namespace hybrid_trainer {

std::vector<std::unique_ptr<JumpAdvisor>> make_jump_advisors(const PhaseConfig& config) {
  std::vector<std::unique_ptr<JumpAdvisor>> advisors;
  const SkipBackwardConfig& group = config.skip_backward;
  if (!group.variants.empty()) advisors.push_back(std::make_unique<PredictionBandit>(config));
  if (group.horizon == "model_based") advisors.push_back(std::make_unique<JumpPlanner>(config));
  return advisors;
}

}  // namespace hybrid_trainer
