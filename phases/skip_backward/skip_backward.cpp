#include "phases/skip_backward/skip_backward.h"

#include "phases/update.h"

namespace hybrid_trainer {

std::string SkipBackwardMethod::text(const PhaseConfig& config) {
  const SkipBackwardConfig& group = config.skip_backward;
  std::vector<std::string> arms;
  for (const PredictionArm& arm : group.arms)
    arms.push_back(concat(arm.predictor, " for ", arm.steps));
  return concat(" by ", arms.empty() ? group.predictor : join(arms), " from confidence ",
                group.confidence_threshold);
}

void SkipBackwardMethod::allow(PhaseSignals& signals) {
  prediction_.gate.add_step();
  const PredictGate::Grant grant = prediction_.grant();
  const std::int64_t steps = parts_.statistics.steps();
  const bool predicts = prediction_.predicts();
  signals.planned_predict = prediction_.jump.planned_steps;
  signals.may_predict = predicts && !parts_.recovery.forces_full(steps) && grant.open &&
                        prediction_.gate.ready() &&
                        prediction_.trust.count() >= prediction_.slopes_needed();
  signals.trial_overdue = grant.overdue && predicts && !parts_.recovery.raises_threshold(steps);
  signals.least_confidence =
      parts_.recovery.threshold(prediction_.config().confidence_threshold, steps);
  signals.confidence = prediction_.trust.confidence();
  signals.stop_predict = signals.stop_predict || prediction_.jump.stop;
}

void SkipBackwardMethod::report(PhaseOutcome& outcome) {
  const bool speaks = prediction_.predicts() && prediction_.gate.ready();
  if (outcome.phase != Phase::kFull || !speaks) return;
  outcome.advantage = prediction_.gate.advantage();
  const PredictGate::Verdict verdict = prediction_.gate.verdict();
  if (verdict == prediction_.verdict) return;
  prediction_.verdict = verdict;
  tell(outcome, prediction_.gate.explanation());
}

void SkipBackwardMethod::give_up() {
  if (prediction_.jump.open) return;
  prediction_.line.release(parts_.model);
  prediction_.predictors = prediction_.new_predictors();
}

}  // namespace hybrid_trainer
