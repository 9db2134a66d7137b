#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "phases/phase_parts.h"
#include "phases/skip_backward/skip_backward.h"

namespace hybrid_trainer {

namespace {

std::string probability_text(double probability) {
  return probability < 0.001 ? "below 0.001" : brief(probability);
}

/// A probe may begin below the confidence threshold.
std::string beginning_text(const Jump& jump, double threshold) {
  const std::string what = concat("predicting ", jump.planned_steps, " steps"),
                    confidence = concat("confidence ", probability_text(jump.confidence));
  if (!jump.trial) return concat(what, ", ", confidence);
  if (jump.confidence >= threshold) return concat("probe: ", what, ", ", confidence);
  return concat("probe: ", what, " to measure their gain, although the ", confidence,
                " is less than ", threshold);
}

}  // namespace

void SkipBackwardMethod::enter_predict(PhaseOutcome& outcome) {
  PredictGate::Grant grant = prediction_.gate.grant();
  grant.steps = parts_.recovery.shortened(grant.steps, parts_.statistics.steps());
  grant.steps = std::min(grant.steps, parts_.steps_to_come() - 1);  // the last step decides
  JumpPlan plan{grant.steps, grant.step_length, prediction_.trust.confidence()};
  for (const auto& advisor : prediction_.advisors) {
    plan = advisor->plan(plan);
    prediction_.charge(*advisor, outcome);
  }
  grant.steps = plan.steps;
  grant.step_length = plan.step_length;
  if (!begin(outcome)) return parts_.turn_to(Phase::kFull, outcome);
  Jump jump;
  jump.open = true;
  jump.planned_steps = grant.steps;
  jump.trial = grant.trial;
  jump.step_length = grant.step_length;
  jump.mean_loss = parts_.monitor.mean_loss();
  jump.start_loss = jump.mean_loss;
  jump.slope = prediction_.trust.mean_slope();
  jump.confidence = plan.confidence;
  jump.cost = std::exchange(prediction_.aim_cost, 0.0);
  prediction_.jump = jump;
  prediction_.gate.begin_jump(grant);
  ++parts_.statistics.predictions.made;
  parts_.statistics.trials += grant.trial;
}

/// Starts the line at the current weights and enters Predict, or returns false.
bool SkipBackwardMethod::begin(PhaseOutcome& outcome) {
  try {
    if (prediction_.aim(outcome)) {
      if (prediction_.line.wait_for_sound_direction(parts_.model)) {
        prediction_.line.start(parts_.model);
        parts_.enter_model(Phase::kPredict);
        return true;
      }
      prediction_.tell_no_direction(outcome);
    }
  } catch (const OutOfMemory& error) {
    parts_.give_up_predicting(error, outcome);
  }
  prediction_.forget_direction();
  return false;
}

void SkipBackwardMethod::predict(const Batch& batch, PhaseOutcome& outcome) {
  Jump& jump = prediction_.jump;
  const std::int64_t before = jump.steps;
  try {
    predict_step(batch, outcome);
  } catch (const OutOfMemory& error) {
    parts_.give_up_predicting(error, outcome);
    jump.lacks_room = jump.stop = true;
    if (jump.steps > before) return;                        // only the move was missing
    jump.batches.resize(static_cast<std::size_t>(before));  // Correct trains on this batch
    parts_.turn_to(Phase::kCorrect, outcome);
  }
}

void SkipBackwardMethod::predict_step(const Batch& batch, PhaseOutcome& outcome) {
  Jump& jump = prediction_.jump;
  const double cost_of_aiming = outcome.cost;  // included in jump.cost
  outcome.confidence = jump.confidence;
  outcome.predictor = prediction_.predictors.name();
  outcome.planned_steps = jump.planned_steps;
  if (jump.steps == 0) {
    tell(outcome, beginning_text(jump, prediction_.config().confidence_threshold));
  }
  const std::int64_t to_come = jump.planned_steps - jump.steps;
  if (to_come <= parts_.setup.restore_lookahead) parts_.model.begin_restore();
  jump.batches.push_back(parts_.model.rollback().keep_batch(batch));
  const std::int64_t interval = prediction_.config().correction_interval;
  const bool micro = interval > 0 && jump.steps > 0 && jump.steps % interval == 0;
  const Verdict verdict = micro ? micro_correct(batch, outcome) : forward(batch, outcome);
  jump.cost += outcome.cost - cost_of_aiming;
  ++jump.steps;
  if (!verdict.normal()) {
    outcome.warns = true;
    tell(outcome, "prediction ends early: " + verdict.reason);
    const RecoveryAction action = parts_.recover(verdict, true);
    outcome.recovery = action.kind;
    if (action.kind != Recovery::kContinue) tell(outcome, action.text());
    jump.stop = true;
    jump.failed = verdict.signal == Signal::kNotFinite;
  }
  if (!jump.stop) advance();
}

Verdict SkipBackwardMethod::forward(const Batch& batch, PhaseOutcome& outcome) {
  Jump& jump = prediction_.jump;
  const double change = jump.expected_change(prediction_.line.position());
  outcome.predicted_loss = jump.start_loss + change;
  outcome.loss = parts_.model.wait_for_loss(batch, batch.size());
  outcome.cost += parts_.config().forward_cost;
  if (jump.steps == 0) jump.start_loss = outcome.loss;
  return parts_.monitor.assess_loss(outcome.loss, jump.start_loss + change);
}

Verdict SkipBackwardMethod::micro_correct(const Batch& batch, PhaseOutcome& outcome) {
  const GradientMeasurement measurement = parts_.model.wait_for_gradient(batch);
  outcome.predicted_loss =
      prediction_.jump.mean_loss + prediction_.jump.expected_change(prediction_.line.position());
  outcome.loss = measurement.loss;
  outcome.cost += 1;
  ++parts_.statistics.micro_corrections;
  if (measurement.lowered_loss_scale)  // no slope; only the loss is judged
    return parts_.monitor.assess_loss(outcome.loss, *outcome.predicted_loss);
  outcome.gradient_norm = measurement.norm;
  if (!measurement.finite()) return parts_.monitor.assess(measurement);
  take_slope(prediction_.line.wait_for_slope(parts_.model), outcome);
  return parts_.monitor.assess_loss(outcome.loss, *outcome.predicted_loss);
}

/// Estimates the position of zero slope by the secant through the slopes at the snapshot and here.
void SkipBackwardMethod::take_slope(double slope, PhaseOutcome& outcome) {
  Jump& jump = prediction_.jump;
  const double position = prediction_.line.position();
  if (slope > 0) {
    jump.stop = true;
    tell(outcome, concat("prediction ends early: the loss rises by ", brief(slope), " per step"));
    return;
  }
  jump.curvature = (slope - jump.slope) / position;  // position > 0 after a predicted step
  jump.limit = jump.curvature > 0 ? position - slope / jump.curvature : 0.0;
  tell(outcome, concat("micro-correction: slope ", brief(slope), " against ", brief(jump.slope)));
}

void SkipBackwardMethod::advance() {
  Jump& jump = prediction_.jump;
  double length = jump.step_length;
  if (jump.limit > 0) length = std::min(length, jump.limit - prediction_.line.position());
  jump.step_length *= prediction_.config().decay;
  if (length <= 0) {
    jump.stop = true;
    return;
  }
  prediction_.line.advance(parts_.model, length);
}

}  // namespace hybrid_trainer
