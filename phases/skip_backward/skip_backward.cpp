#include "phases/skip_backward/skip_backward.h"

namespace hybrid_trainer {

bool SkipBackwardMethod::wants_slope() const {
  if (parts_.phase != Phase::kFull || !prediction_.predicts()) return false;
  if (parts_.recovery.forces_full(parts_.statistics.steps())) return false;
  const std::int64_t remaining = parts_.config().full_steps - parts_.steps_in_phase;
  return remaining <= prediction_.slopes_needed() && prediction_.allowance().open;
}

/// Measures the slope along the direction. A nonzero direction with a slope of exactly 0 is
/// invalid.
void SkipBackwardMethod::measure_slope(const GradientMeasurement& measurement,
                                       PhaseOutcome& outcome) {
  double slope = 0;
  try {
    slope = prediction_.line.wait_for_slope(parts_.model);
  } catch (const OutOfMemory& error) {
    return parts_.disable_prediction(error, outcome);
  }
  if (!prediction_.line.moves() || (slope != 0 && std::isfinite(slope))) {
    prediction_.trust.add(slope);
  } else {
    prediction_.trust.clear();
    const bool has_updated = std::isfinite(parts_.monitor.mean_loss());
    if (has_updated && measurement.norm > 0) prediction_.report_no_direction(outcome);
  }
  outcome.confidence = prediction_.trust.confidence();
}

void SkipBackwardMethod::train(const Batch& batch, PhaseOutcome& outcome) {
  bool has_direction = wants_slope() && prediction_.compute_direction(outcome);
  if (!has_direction) prediction_.forget_direction();  // older slopes belong to another direction
  GradientMeasurement measurement;
  try {
    measurement = parts_.model.wait_for_gradient(batch);
  } catch (const OutOfMemory& error) {
    if (!prediction_.predicts()) throw;
    parts_.disable_prediction(error, outcome);
    measurement = parts_.model.wait_for_gradient(batch);  // without the memory of a prediction
  }
  has_direction = has_direction && prediction_.predicts();
  outcome.cost += 1;
  if (has_direction && measurement.finite()) measure_slope(measurement, outcome);
  update(parts_, measurement, outcome);
  if (parts_.phase == Phase::kFull && outcome.updates > 0 && prediction_.predicts())
    prediction_.gate.add_full_loss(outcome.loss);
}

const std::vector<Refusal>& SkipBackwardMethod::refusals() {
  const std::string strategy = "predict_aware_memory.offload_strategy",
                    longest = "phases.max_predict_steps";
  static const std::vector<Refusal> rows{
      {.keys = {"data.carry_state"},
       .values = {"false"},
       .why = "Correct repeats batches, but the carried states belong to later batches",
       .when = {{longest, Kind::kIsMoreThan, {"0"}}},
       .wanted = "false, or phases.max_predict_steps=0"},
      {.keys = {strategy},
       .values = {"drop_and_reinitialize"},
       .why = "memory.optimizer_state keeps the state off the device, so there is nothing to drop",
       .kind = Kind::kIsNoneOf,
       .when = {{"memory.optimizer_state", Kind::kIsNoneOf, {"device"}}},
       .wanted = "none"},
      {.keys = {strategy},
       .values = {"drop_and_reinitialize"},
       .why = "optimizer.paged keeps the state off the device, so there is nothing to drop",
       .kind = Kind::kIsNoneOf,
       .when = {{"optimizer.paged", Kind::kIsOneOf, {"true"}}},
       .wanted = "none"},
      {.keys = {"phases.skip_backward.variants[].steps"},
       .values = {longest},
       .why = "phases.max_predict_steps limits the length of predictions",
       .kind = Kind::kIsAtMost,
       .when = {{longest, Kind::kIsMoreThan, {"0"}}}},
      {.keys = {"phases.skip_backward.predictor", "phases.skip_backward.variants[].predictor"},
       .values = {"random"},
       .why = "with distributed.zero, each rank would draw random numbers only for its shard",
       .kind = Kind::kIsNoneOf,
       .when = {{"distributed.zero", Kind::kIsMoreThan, {"0"}},
                {"ranks", Kind::kIsMoreThan, {"0"}}},
       .wanted = "another predictor"},
      refusal_of_rounded_gradients(),
  };
  return rows;
}

std::string SkipBackwardMethod::text(const PhaseConfig& config) {
  const SkipBackwardConfig& group = config.skip_backward;
  std::vector<std::string> arms;
  for (const PredictionVariant& arm : group.variants)
    arms.push_back(concat(arm.predictor, " for ", arm.steps));
  return concat(" by ", arms.empty() ? group.predictor : join(arms), " from confidence ",
                group.confidence_threshold);
}

void SkipBackwardMethod::allow(PhaseSignals& signals) {
  prediction_.gate.add_step();
  const PredictGate::Allowance allowance = prediction_.allowance();
  const std::int64_t steps = parts_.statistics.steps();
  const bool predicts = prediction_.predicts();
  signals.planned_predict = prediction_.extrapolation.planned_steps;
  signals.may_predict = predicts && !parts_.recovery.forces_full(steps) && allowance.open &&
                        prediction_.gate.ready() &&
                        prediction_.trust.count() >= prediction_.slopes_needed();
  signals.trial_overdue = allowance.overdue && predicts && !parts_.recovery.raises_threshold(steps);
  signals.min_confidence =
      parts_.recovery.threshold(prediction_.config().confidence_threshold, steps);
  signals.confidence = prediction_.trust.confidence();
  signals.stop_predict = signals.stop_predict || prediction_.extrapolation.stop;
}

void SkipBackwardMethod::report(PhaseOutcome& outcome) {
  const bool has_verdict = prediction_.predicts() && prediction_.gate.ready();
  if (outcome.phase != Phase::kFull || !has_verdict) return;
  outcome.advantage = prediction_.gate.advantage();
  const PredictGate::Verdict verdict = prediction_.gate.verdict();
  if (verdict == prediction_.verdict) return;
  prediction_.verdict = verdict;
  add_event(outcome, prediction_.gate.explanation());
}

void SkipBackwardMethod::disable() {
  if (prediction_.extrapolation.open) return;
  prediction_.line.release(parts_.model);
  prediction_.predictors = prediction_.make_predictors();
}

MethodRow skip_backward_row() { return row_of<SkipBackwardMethod>("skip_backward"); }

}  // namespace hybrid_trainer
