#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "phases/phase_parts.h"
#include "phases/skip_backward/skip_backward.h"

namespace hybrid_trainer {

namespace {

/// Returns the minimum of the parabola f(s) = f(0) + start·s + bend·s² with f(1) − f(0) = rise > 0
/// and f'(1) = end_slope; 0 if it rises from the start.
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
    if (!prediction_.jump.open) throw;
    parts_.give_up_predicting(error, outcome);
    prediction_.jump.lacks_room = true;
  }
}

void SkipBackwardMethod::correct(const Batch& batch, PhaseOutcome& outcome) {
  if (prediction_.jump.open) {
    update(parts_, decide(batch, outcome), outcome);
    return;
  }
  outcome.cost += 1;
  update(parts_, parts_.model.wait_for_gradient(batch), outcome);
}

std::size_t SkipBackwardMethod::probe_count() const {
  const auto wanted = static_cast<std::size_t>(prediction_.config().probe_batches);
  return std::min(wanted, prediction_.jump.batches.size());
}

double SkipBackwardMethod::probe_loss(PhaseOutcome& outcome) {
  const std::size_t count = probe_count();
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Batch batch = parts_.model.rollback().fetch_batch(prediction_.jump.batches[i]);
    sum += parts_.model.wait_for_loss(batch, batch.size());
  }
  outcome.cost += static_cast<double>(count) * parts_.config().forward_cost;
  return sum / static_cast<double>(count);
}

/// Leaves the weights at the snapshot.
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

/// Returns the fraction of the prediction to keep, and leaves the weights there: 1 if the probe
/// loss did not rise, else a shorter one that lowers it, else 0.
double SkipBackwardMethod::choose(const Comparison& losses, double& kept_loss,
                                  PhaseOutcome& outcome) {
  if (losses.alarm.empty() && losses.after <= losses.before) {
    kept_loss = losses.after;
    prediction_.line.return_to(parts_.model, losses.position);
    return 1;
  }
  double fraction = 0;
  if (losses.alarm.empty()) {
    fraction = parabola_minimum(losses.after - losses.before, losses.slope * losses.position);
  }
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

/// Trains on the batches of Predict as Full would have done.
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

/// Compares losses before and after, decides, and leaves the weights at the kept point.
void SkipBackwardMethod::judge(const GradientMeasurement& measurement, PhaseOutcome& outcome) {
  Jump& jump = prediction_.jump;
  const Comparison losses = compare(measurement, outcome);
  double kept_loss = losses.before;
  jump.kept_fraction = choose(losses, kept_loss, outcome);
  jump.paired_drop = jump.kept_fraction > 0 ? losses.before - kept_loss : 0;
  const std::string change =
      concat("loss ", brief(losses.before), " -> ", brief(losses.after), " on ", probe_count(),
             " batches after ", jump.steps, " predicted steps");
  if (jump.kept_fraction == 1) {
    tell(outcome, "accepted: " + change);
  } else if (jump.kept_fraction > 0) {
    tell(outcome, concat("shrunk to ", brief(jump.kept_fraction), ": ", change, ", then ",
                         brief(kept_loss)));
  } else {
    outcome.warns = !losses.alarm.empty();
    tell(outcome, concat("reverted: ", losses.alarm.empty() ? "" : losses.alarm + ", ", change));
  }
}

/// The prediction is not to blame for a gradient that overflows the loss scale of fp16.
GradientMeasurement SkipBackwardMethod::wait_for_gradient_to_judge(const Batch& batch,
                                                                   PhaseOutcome& outcome) {
  for (;;) {
    const GradientMeasurement measurement = parts_.model.wait_for_gradient(batch);
    outcome.cost += 1;
    if (!measurement.lowered_loss_scale) return measurement;
    tell(outcome, concat("the gradient overflowed in fp16: computed it again with the loss scale ",
                         *measurement.lowered_loss_scale));
  }
}

/// Returns the measurement at the predicted point, if it was measured.
GradientMeasurement SkipBackwardMethod::try_to_judge(const Batch& batch, PhaseOutcome& outcome) {
  Jump& jump = prediction_.jump;
  GradientMeasurement measurement;
  try {
    if (jump.moved && !jump.failed && !jump.lacks_room) {
      measurement = wait_for_gradient_to_judge(batch, outcome);
      judge(measurement, outcome);
      return measurement;
    }
  } catch (const OutOfMemory& error) {
    parts_.give_up_predicting(error, outcome);
    jump.lacks_room = true;
  }
  revert_unseen(outcome);
  return measurement;
}

void SkipBackwardMethod::revert_unseen(PhaseOutcome& outcome) {
  const Jump& jump = prediction_.jump;
  prediction_.line.return_to(parts_.model, 0);
  outcome.warns = outcome.warns || jump.failed || jump.lacks_room;
  const char* const why = jump.lacks_room ? "memory was too short"
                          : jump.failed   ? "a loss was not finite"
                                          : "nothing moved";
  tell(outcome, concat("reverted: ", why, " in ", jump.steps, " predicted steps"));
}

/// Returns the measurement at the kept point. All other measurements count as cost of the
/// prediction, except replayed ones, which are updates as in Full.
GradientMeasurement SkipBackwardMethod::decide(const Batch& batch, PhaseOutcome& outcome) {
  Jump& jump = prediction_.jump;
  jump.moved = prediction_.line.position() > 0;
  outcome.predicted_loss = jump.mean_loss + jump.expected_change(prediction_.line.position());
  outcome.confidence = jump.confidence;
  const GradientMeasurement measurement = try_to_judge(batch, outcome);
  const bool kept_whole = jump.kept_fraction == 1;
  jump.decision = kept_whole               ? Decision::kAccepted
                  : jump.kept_fraction > 0 ? Decision::kShrunk
                                           : Decision::kReverted;
  std::vector<Batch> to_replay;
  if (jump.decision == Decision::kReverted) to_replay = jump.batches;
  jump.cost = jump.cost + outcome.cost - (kept_whole ? 1 : 0);
  jump.updates = static_cast<std::int64_t>(to_replay.size()) + parts_.config().correct_steps;
  outcome.decision = jump.decision;
  outcome.kept_fraction = jump.kept_fraction;
  outcome.predictor = prediction_.predictors.name();
  outcome.planned_steps = jump.planned_steps;
  prediction_.close_jump();
  for (const auto& advisor : prediction_.advisors)
    if (const std::string why = advisor->explanation(); !why.empty()) tell(outcome, why);
  if (outcome.decision == Decision::kReverted) replay(std::move(to_replay), outcome);
  if (kept_whole) return measurement;
  outcome.cost += 1;  // the last measurement was at another point
  return parts_.model.wait_for_gradient(batch);
}

}  // namespace hybrid_trainer
