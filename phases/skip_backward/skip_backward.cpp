#include "phases/skip_backward/skip_backward.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::string SkipBackwardMethod::text(const PhaseConfig& config) {
  const SkipBackwardConfig& group = config.skip_backward;
  std::vector<std::string> arms;
  for (const PredictionArm& arm : group.arms)
    arms.push_back(concat(arm.predictor, " for ", arm.steps));
  return concat(" by ", arms.empty() ? group.predictor : join(arms), " from confidence ",
                group.confidence_threshold);
}

}  // namespace hybrid_trainer
