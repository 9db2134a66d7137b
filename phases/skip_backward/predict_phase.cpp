
#include "phases/skip_backward/skip_backward.h"

namespace hybrid_trainer {

namespace {

std::string probability_text(double probability) {
  return probability < 0.001 ? "below 0.001" : brief(probability);
}

std::string start_text(const Extrapolation& extrapolation, double threshold) {
  const std::string what = concat("predicting ", extrapolation.planned_steps, " steps"),
                    confidence = concat("confidence ", probability_text(extrapolation.confidence));
  if (!extrapolation.trial) return concat(what, ", ", confidence);
  if (extrapolation.confidence >= threshold) return concat("probe: ", what, ", ", confidence);
  return concat("probe: ", what, " to measure their gain, although the ", confidence,
                " is less than ", threshold);
}

}  // namespace

void SkipBackwardMethod::enter_predict(PhaseOutcome& outcome) {
  PredictGate::Allowance allowance = prediction_.gate.allowance();
  allowance.steps = parts_.recovery.shortened(allowance.steps, parts_.statistics.steps());
  allowance.steps =
      std::min(allowance.steps, parts_.remaining_steps() - 1);  // the last step decides
  ExtrapolationPlan plan{allowance.steps, allowance.step_length, prediction_.trust.confidence()};
  for (const auto& advisor : prediction_.advisors) {
    plan = advisor->plan(plan);
    prediction_.count_cost(*advisor, outcome);
  }
  allowance.steps = plan.steps;
  allowance.step_length = plan.step_length;
  if (!begin(outcome)) return parts_.switch_to(Phase::kFull, outcome);
  Extrapolation extrapolation;
  extrapolation.open = true;
  extrapolation.planned_steps = allowance.steps;
  extrapolation.trial = allowance.trial;
  extrapolation.step_length = allowance.step_length;
  extrapolation.mean_loss = parts_.monitor.mean_loss();
  extrapolation.start_loss = extrapolation.mean_loss;
  extrapolation.slope = prediction_.trust.mean_slope();
  extrapolation.confidence = plan.confidence;
  extrapolation.cost = std::exchange(prediction_.direction_cost, 0.0);
  prediction_.extrapolation = extrapolation;
  prediction_.gate.begin_extrapolation(allowance);
  ++parts_.statistics.predictions.made;
  parts_.statistics.trials += allowance.trial;
}

/// Starts the line at the current weights and enters Predict, or returns false.
bool SkipBackwardMethod::begin(PhaseOutcome& outcome) {
  try {
    if (prediction_.compute_direction(outcome)) {
      if (prediction_.line.wait_for_valid_direction(parts_.model)) {
        prediction_.line.start(parts_.model);
        parts_.enter_model(Phase::kPredict);
        return true;
      }
      prediction_.report_no_direction(outcome);
    }
  } catch (const OutOfMemory& error) {
    parts_.disable_prediction(error, outcome);
  }
  prediction_.forget_direction();
  return false;
}

void SkipBackwardMethod::predict(const Batch& batch, PhaseOutcome& outcome) {
  Extrapolation& extrapolation = prediction_.extrapolation;
  const std::int64_t before = extrapolation.steps;
  try {
    predict_step(batch, outcome);
  } catch (const OutOfMemory& error) {
    parts_.disable_prediction(error, outcome);
    extrapolation.is_out_of_memory = extrapolation.stop = true;
    if (extrapolation.steps > before) return;                        // only the move was missing
    extrapolation.batches.resize(static_cast<std::size_t>(before));  // Correct trains on this batch
    parts_.switch_to(Phase::kCorrect, outcome);
  }
}

void SkipBackwardMethod::predict_step(const Batch& batch, PhaseOutcome& outcome) {
  Extrapolation& extrapolation = prediction_.extrapolation;
  const double direction_cost = outcome.cost;  // included in extrapolation.cost
  outcome.confidence = extrapolation.confidence;
  outcome.predictor = prediction_.predictors.name();
  outcome.planned_steps = extrapolation.planned_steps;
  if (extrapolation.steps == 0)
    add_event(outcome, start_text(extrapolation, prediction_.config().confidence_threshold));
  const std::int64_t remaining = extrapolation.planned_steps - extrapolation.steps;
  if (remaining <= parts_.setup.restore_lookahead) parts_.model.begin_restore();
  extrapolation.batches.push_back(parts_.model.rollback().keep_batch(batch));
  const std::int64_t interval = prediction_.config().correction_interval;
  const bool micro = interval > 0 && extrapolation.steps > 0 && extrapolation.steps % interval == 0;
  const Verdict verdict = micro ? micro_correct(batch, outcome) : forward(batch, outcome);
  extrapolation.cost += outcome.cost - direction_cost;
  ++extrapolation.steps;
  if (!verdict.normal()) {
    outcome.warns = true;
    add_event(outcome, "prediction ends early: " + verdict.reason);
    const RecoveryAction action = parts_.recover(verdict, true);
    outcome.recovery = action.kind;
    if (action.kind != Recovery::kContinue) add_event(outcome, action.text());
    extrapolation.stop = true;
    extrapolation.failed = verdict.signal == Signal::kNotFinite;
  }
  if (!extrapolation.stop) advance();
}

Verdict SkipBackwardMethod::forward(const Batch& batch, PhaseOutcome& outcome) {
  Extrapolation& extrapolation = prediction_.extrapolation;
  const double change = extrapolation.expected_change(prediction_.line.position());
  outcome.predicted_loss = extrapolation.start_loss + change;
  outcome.loss = parts_.model.wait_for_loss(batch, batch.size());
  outcome.cost += parts_.config().forward_cost;
  if (extrapolation.steps == 0) extrapolation.start_loss = outcome.loss;
  return parts_.monitor.assess_loss(outcome.loss, extrapolation.start_loss + change);
}

Verdict SkipBackwardMethod::micro_correct(const Batch& batch, PhaseOutcome& outcome) {
  const GradientMeasurement measurement = parts_.model.wait_for_gradient(batch);
  outcome.predicted_loss = prediction_.extrapolation.mean_loss +
                           prediction_.extrapolation.expected_change(prediction_.line.position());
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

/// Estimates the position of zero slope by a secant through the snapshot and the current position.
void SkipBackwardMethod::take_slope(double slope, PhaseOutcome& outcome) {
  Extrapolation& extrapolation = prediction_.extrapolation;
  const double position = prediction_.line.position();
  if (slope > 0) {
    extrapolation.stop = true;
    add_event(outcome,
              concat("prediction ends early: the loss rises by ", brief(slope), " per step"));
    return;
  }
  extrapolation.curvature =
      (slope - extrapolation.slope) / position;  // position > 0 after a predicted step
  extrapolation.limit =
      extrapolation.curvature > 0 ? position - slope / extrapolation.curvature : 0.0;
  add_event(outcome, concat("micro-correction: slope ", brief(slope), " against ",
                            brief(extrapolation.slope)));
}

void SkipBackwardMethod::advance() {
  Extrapolation& extrapolation = prediction_.extrapolation;
  double length = extrapolation.step_length;
  if (extrapolation.limit > 0)
    length = std::min(length, extrapolation.limit - prediction_.line.position());
  extrapolation.step_length *= prediction_.config().decay;
  if (length <= 0) {
    extrapolation.stop = true;
    return;
  }
  prediction_.line.advance(parts_.model, length);
}

}  // namespace hybrid_trainer
