
#include "phases/skip_backward/skip_backward.h"

namespace hybrid_trainer {

namespace {

/// Returns the position s of the minimum of the parabola f(s) = f(0) + start·s + bend·s² with f(1)
/// − f(0) = rise > 0 and f'(1) = end_slope, or 0 if the parabola rises from the start.
double parabola_minimum(double rise, double end_slope) {
  const double start = 2 * rise - end_slope;
  const double bend = end_slope - rise;
  return start < 0 ? -start / (2 * bend) : 0.0;
}

}  // namespace

void SkipBackwardMethod::enter_correct(PhaseOutcome& outcome) {
  try {
    parts_.enter_model(Phase::kCorrect);
  } catch (const OutOfMemory& error) {
    if (!prediction_.extrapolation.open) throw;
    parts_.disable_prediction(error, outcome);
    prediction_.extrapolation.is_out_of_memory = true;
  }
}

void SkipBackwardMethod::correct(const Batch& batch, PhaseOutcome& outcome) {
  if (prediction_.extrapolation.open) {
    update(parts_, decide(batch, outcome), outcome);
    return;
  }
  outcome.cost += 1;
  update(parts_, parts_.model.wait_for_gradient(batch), outcome);
}

std::size_t SkipBackwardMethod::probe_count() const {
  const auto wanted = static_cast<std::size_t>(prediction_.config().probe_batches);
  return std::min(wanted, prediction_.extrapolation.batches.size());
}

double SkipBackwardMethod::probe_loss(PhaseOutcome& outcome) {
  const std::size_t count = probe_count();
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Batch batch = parts_.model.rollback().fetch_batch(prediction_.extrapolation.batches[i]);
    sum += parts_.model.wait_for_loss(batch, batch.size());
  }
  outcome.cost += static_cast<double>(count) * parts_.config().forward_cost;
  return sum / static_cast<double>(count);
}

SkipBackwardMethod::Comparison SkipBackwardMethod::compare(const GradientMeasurement& measurement,
                                                           PhaseOutcome& outcome) {
  Comparison losses;
  losses.position = prediction_.line.position();
  losses.slope = prediction_.line.wait_for_slope(parts_.model);
  losses.after = probe_loss(outcome);
  const Verdict verdict = parts_.monitor.assess(measurement);
  const bool bad = verdict.signal == Signal::kNotFinite || verdict.signal == Signal::kExplosion;
  if (bad) losses.alarm = verdict.reason;
  if (!std::isfinite(losses.after)) losses.alarm = concat("probe loss ", losses.after);
  prediction_.line.return_to(parts_.model, 0);
  losses.before = probe_loss(outcome);
  return losses;
}

/// Selects the fraction of the prediction to keep, moves the weights to it and returns it: 1 if the
/// probe loss did not rise; otherwise a smaller fraction at which the loss fell; otherwise 0.
double SkipBackwardMethod::choose(const Comparison& losses, double& kept_loss,
                                  PhaseOutcome& outcome) {
  if (losses.alarm.empty() && losses.after <= losses.before) {
    kept_loss = losses.after;
    prediction_.line.return_to(parts_.model, losses.position);
    return 1;
  }
  double fraction = 0;
  if (losses.alarm.empty())
    fraction = parabola_minimum(losses.after - losses.before, losses.slope * losses.position);
  for (std::int64_t i = 0; i < prediction_.config().max_shrinks && fraction > 0;
       ++i, fraction /= 2) {
    prediction_.line.return_to(parts_.model, fraction * losses.position);
    kept_loss = probe_loss(outcome);
    if (kept_loss < losses.before) return fraction;
  }
  kept_loss = losses.before;
  prediction_.line.return_to(parts_.model, 0);
  return 0;
}

void SkipBackwardMethod::replay(std::vector<Batch> batches, PhaseOutcome& outcome) {
  const std::unique_ptr<Trainable, void (*)(Trainable*)> rewound(
      &parts_.model, [](Trainable* model) { model->rollback().rewind(0); });
  parts_.enter_model(Phase::kFull);
  auto steps_ago = static_cast<std::int64_t>(batches.size());
  for (Batch& batch : batches) {
    parts_.model.rollback().rewind(steps_ago--);
    const Batch here = parts_.model.rollback().fetch_batch(std::exchange(batch, {}));
    update(parts_, parts_.model.wait_for_gradient(here), outcome);
    outcome.cost += 1;
  }
}

/// Compares the losses before and after the prediction, then accepts, shrinks or reverts it. Leaves
/// the weights at the chosen point.
void SkipBackwardMethod::judge(const GradientMeasurement& measurement, PhaseOutcome& outcome) {
  Extrapolation& extrapolation = prediction_.extrapolation;
  const Comparison losses = compare(measurement, outcome);
  double kept_loss = losses.before;
  extrapolation.kept_fraction = choose(losses, kept_loss, outcome);
  extrapolation.paired_drop = extrapolation.kept_fraction > 0 ? losses.before - kept_loss : 0;
  const std::string change =
      concat("loss ", brief(losses.before), " -> ", brief(losses.after), " on ", probe_count(),
             " batches after ", extrapolation.steps, " predicted steps");
  if (extrapolation.kept_fraction == 1) {
    add_event(outcome, "accepted: " + change);
  } else if (extrapolation.kept_fraction > 0) {
    add_event(outcome, concat("shrunk to ", brief(extrapolation.kept_fraction), ": ", change,
                              ", then ", brief(kept_loss)));
  } else {
    outcome.warns = !losses.alarm.empty();
    add_event(outcome,
              concat("reverted: ", losses.alarm.empty() ? "" : losses.alarm + ", ", change));
  }
}

/// Repeats the gradient if fp16's loss scale overflows, which is not due to the prediction.
GradientMeasurement SkipBackwardMethod::wait_for_decision_gradient(const Batch& batch,
                                                                   PhaseOutcome& outcome) {
  for (;;) {
    const GradientMeasurement measurement = parts_.model.wait_for_gradient(batch);
    outcome.cost += 1;
    if (!measurement.lowered_loss_scale) return measurement;
    add_event(outcome,
              concat("the gradient overflowed in fp16 and was computed again with the loss scale ",
                     *measurement.lowered_loss_scale));
  }
}

/// Decides on the prediction. Returns the measurement at the predicted point, if it was measured.
GradientMeasurement SkipBackwardMethod::try_decision_gradient(const Batch& batch,
                                                              PhaseOutcome& outcome) {
  Extrapolation& extrapolation = prediction_.extrapolation;
  GradientMeasurement measurement;
  try {
    if (extrapolation.moved && !extrapolation.failed && !extrapolation.is_out_of_memory) {
      measurement = wait_for_decision_gradient(batch, outcome);
      judge(measurement, outcome);
      return measurement;
    }
  } catch (const OutOfMemory& error) {
    parts_.disable_prediction(error, outcome);
    extrapolation.is_out_of_memory = true;
  }
  revert_unmeasured(outcome);
  return measurement;
}

void SkipBackwardMethod::revert_unmeasured(PhaseOutcome& outcome) {
  const Extrapolation& extrapolation = prediction_.extrapolation;
  prediction_.line.return_to(parts_.model, 0);
  outcome.warns = outcome.warns || extrapolation.failed || extrapolation.is_out_of_memory;
  const char* const why = extrapolation.is_out_of_memory ? "not enough memory"
                          : extrapolation.failed         ? "a loss was not finite"
                                                         : "no weight changed";
  add_event(outcome, concat("reverted: ", why, " in ", extrapolation.steps, " predicted steps"));
}

/// Decides on the prediction and returns the measurement at the kept point. All other measurements
/// count as cost of the prediction, except those of replayed batches, which are updates as in Full.
GradientMeasurement SkipBackwardMethod::decide(const Batch& batch, PhaseOutcome& outcome) {
  Extrapolation& extrapolation = prediction_.extrapolation;
  extrapolation.moved = prediction_.line.position() > 0;
  outcome.predicted_loss =
      extrapolation.mean_loss + extrapolation.expected_change(prediction_.line.position());
  outcome.confidence = extrapolation.confidence;
  const GradientMeasurement measurement = try_decision_gradient(batch, outcome);
  const bool is_accepted = extrapolation.kept_fraction == 1;
  extrapolation.decision = is_accepted                       ? Decision::kAccepted
                           : extrapolation.kept_fraction > 0 ? Decision::kShrunk
                                                             : Decision::kReverted;
  std::vector<Batch> to_replay;
  if (extrapolation.decision == Decision::kReverted) to_replay = extrapolation.batches;
  extrapolation.cost = extrapolation.cost + outcome.cost - (is_accepted ? 1 : 0);
  extrapolation.updates =
      static_cast<std::int64_t>(to_replay.size()) + parts_.config().correct_steps;
  outcome.decision = extrapolation.decision;
  outcome.kept_fraction = extrapolation.kept_fraction;
  outcome.predictor = prediction_.predictors.name();
  outcome.planned_steps = extrapolation.planned_steps;
  prediction_.close_extrapolation();
  for (const auto& advisor : prediction_.advisors)
    if (const std::string why = advisor->explanation(); !why.empty()) add_event(outcome, why);
  if (outcome.decision == Decision::kReverted) replay(std::move(to_replay), outcome);
  if (is_accepted) return measurement;
  outcome.cost += 1;  // the last measurement was at another point
  return parts_.model.wait_for_gradient(batch);
}

}  // namespace hybrid_trainer
