#include <algorithm>
#include <cmath>

#include "phases/phase_executor.h"

namespace hybrid_trainer {
namespace {

/// Lowest point of the parabola f(s) = f(0) + start·s + bend·s² with f(1) − f(0) = rise > 0 and
/// f'(1) = end_slope; 0 where it rises from the start.
double parabola_minimum(double rise, double end_slope) {
  const double start = 2 * rise - end_slope;
  const double bend = end_slope - rise;
  return start < 0 ? -start / (2 * bend) : 0.0;
}

}  // namespace

PhaseOutcome CorrectExecutor::run(const Batch& batch) {
  PhaseOutcome outcome;
  outcome.phase = Phase::kCorrect;
  if (parts_.jump.open) {
    outcome.predicted_loss = parts_.jump.expected_loss(parts_.line.position());
    outcome.confidence = parts_.jump.confidence;
  }
  GradientMeasurement measurement = parts_.model.wait_for_gradient(batch);
  outcome.cost = 1;
  if (parts_.jump.open) decide(batch, measurement, outcome);
  update(parts_, measurement, outcome);
  return outcome;
}

std::size_t CorrectExecutor::probe_count() const {
  const auto wanted = static_cast<std::size_t>(parts_.config().probe_batches);
  return std::min(wanted, parts_.jump.batches.size());
}

double CorrectExecutor::probe_loss(PhaseOutcome& outcome) {
  const std::size_t count = probe_count();
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += parts_.model.wait_for_loss(parts_.jump.batches[i]);
  outcome.cost += static_cast<double>(count) * parts_.config().forward_cost;
  return sum / static_cast<double>(count);
}

/// Leaves the weights at the snapshot.
CorrectExecutor::Comparison CorrectExecutor::compare(const GradientMeasurement& measurement,
                                                     PhaseOutcome& outcome) {
  Comparison losses;
  losses.position = parts_.line.position();
  losses.slope = parts_.line.wait_for_slope(parts_.model);
  losses.after = probe_loss(outcome);
  const Verdict verdict = parts_.monitor.assess(measurement);
  const bool bad = verdict.signal == Signal::kNotFinite || verdict.signal == Signal::kExplosion;
  if (bad) losses.alarm = verdict.reason;
  if (!std::isfinite(losses.after)) losses.alarm = concat("probe loss ", losses.after);
  parts_.line.return_to(parts_.model, 0);
  losses.before = probe_loss(outcome);
  return losses;
}

/// The fraction of the jump to keep: all where it did not raise the probes' loss, else a shorter
/// one that lowers it, else 0. Leaves the weights there.
double CorrectExecutor::choose(const Comparison& losses, double& kept_loss, PhaseOutcome& outcome) {
  if (losses.alarm.empty() && losses.after <= losses.before) {
    kept_loss = losses.after;
    parts_.line.return_to(parts_.model, losses.position);
    return 1;
  }
  double fraction = 0;
  if (losses.alarm.empty()) {
    fraction = parabola_minimum(losses.after - losses.before, losses.slope * losses.position);
  }
  for (std::int64_t i = 0; i < parts_.config().max_shrinks && fraction > 0; ++i, fraction /= 2) {
    parts_.line.return_to(parts_.model, fraction * losses.position);
    kept_loss = probe_loss(outcome);
    if (kept_loss < losses.before) return fraction;
  }
  kept_loss = losses.before;
  parts_.line.return_to(parts_.model, 0);
  return 0;
}

void CorrectExecutor::replay(PhaseOutcome& outcome) {
  const auto count = static_cast<std::int64_t>(parts_.jump.batches.size());
  for (std::int64_t i = 0; i < count; ++i) {
    parts_.model.rewind(count - i);
    const Batch& batch = parts_.jump.batches[static_cast<std::size_t>(i)];
    update(parts_, parts_.model.wait_for_gradient(batch), outcome);
    outcome.cost += 1;
  }
  parts_.model.rewind(0);
}

void CorrectExecutor::decide(const Batch& batch, GradientMeasurement& measurement,
                             PhaseOutcome& outcome) {
  const Comparison losses = compare(measurement, outcome);
  double kept_loss = losses.before;
  outcome.kept_fraction = choose(losses, kept_loss, outcome);
  outcome.decision = outcome.kept_fraction == 1  ? Decision::kAccepted
                     : outcome.kept_fraction > 0 ? Decision::kShrunk
                                                 : Decision::kReverted;
  const std::string change =
      concat("loss ", brief(losses.before), " -> ", brief(losses.after), " on ", probe_count(),
             " batches after ", parts_.jump.steps, " predicted steps");
  if (outcome.decision == Decision::kAccepted) say(outcome, "accepted: " + change);
  if (outcome.decision == Decision::kShrunk) {
    say(outcome, concat("shrunk to ", brief(outcome.kept_fraction), ": ", change, ", then ",
                        brief(kept_loss)));
  }
  if (outcome.decision == Decision::kReverted) {
    const bool alarmed = !losses.alarm.empty();
    say(outcome, concat("reverted: ", alarmed ? losses.alarm + ", " : "", change));
  }
  if (outcome.decision == Decision::kReverted) replay(outcome);
  if (outcome.kept_fraction != 1) {  // the gradient is of another point
    measurement = parts_.model.wait_for_gradient(batch);
    outcome.cost += 1;
  }
  const double charged = parts_.jump.cost + outcome.cost - 1;  // the update itself is a Full step's
  parts_.close_jump({charged, losses.before - kept_loss,
                     outcome.updates + parts_.config().correct_steps, outcome.decision,
                     outcome.kept_fraction});
}

}  // namespace hybrid_trainer
