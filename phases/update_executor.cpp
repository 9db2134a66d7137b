#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "phases/phase_executor.h"

namespace hybrid_trainer {

void tell(PhaseOutcome& outcome, const std::string& text) {
  if (!outcome.event.empty()) outcome.event += "; ";
  outcome.event += text;
}

namespace {

/// Counts an update that is not made. Throws Diverged where that, or the action, ends the run.
void skip(PhaseParts& parts, const RecoveryAction& action, PhaseOutcome& outcome) {
  const std::int64_t most = parts.setup.divergence.max_skipped_updates;
  ++parts.statistics.skipped_updates;
  ++parts.skipped_in_a_row;
  const bool too_many = action.kind != Recovery::kRollBack && parts.skipped_in_a_row > most;
  outcome.recovery = std::max({outcome.recovery, action.kind, Recovery::kSkipBatch});
  if (action.kind != Recovery::kAbort && !too_many) return;
  outcome.recovery = Recovery::kAbort;
  const std::string why =
      too_many ? concat(", ", parts.skipped_in_a_row,
                        " updates in a row, more than divergence.max_skipped_updates = ", most)
               : concat(", which is to end the run (divergence.on_", name_of(action.severity), ")");
  const std::string text = concat("training diverged: ", action.reason, why,
                                  "; the weights are those of the last good update");
  outcome.warns = true;
  tell(outcome, text);
  throw Diverged(text + "; lower optimizer.learning_rate or look into the data");
}

}  // namespace

void update(PhaseParts& parts, const GradientMeasurement& measurement, PhaseOutcome& outcome,
            const std::function<void(bool applies)>& apply) {
  outcome.loss = measurement.loss;
  outcome.gradient_norm = measurement.norm;
  const Verdict verdict = parts.monitor.assess(measurement);
  parts.signal = verdict.signal;
  const RecoveryAction action = parts.recover(verdict, false);
  const bool applies = verdict.signal != Signal::kNotFinite && action.kind < Recovery::kSkipBatch;
  if (!applies) skip(parts, action, outcome);
  if (!applies && verdict.signal == Signal::kOscillation) parts.monitor.use_up_oscillation();
  if (apply) {
    apply(applies);
  } else if (applies) {
    parts.model.apply_gradient();
  }
  if (applies) {
    parts.monitor.observe(measurement);
    parts.advise_of_update(measurement, outcome);
    parts.skipped_in_a_row = 0;
    ++outcome.updates;
    parts.observe_update(outcome);
    outcome.recovery = std::max(outcome.recovery, action.kind);
  }
  if (verdict.normal()) return;
  outcome.warns = true;
  tell(outcome, applies
                    ? "warning: " + verdict.reason
                    : concat("skipped the update: ", verdict.reason, " (", parts.skipped_in_a_row,
                             " of ", parts.setup.divergence.max_skipped_updates, " in a row)"));
  if (action.kind != Recovery::kContinue && action.kind != Recovery::kSkipBatch)
    tell(outcome, action.text());
}

bool UpdateExecutor::wants_slope() const {
  if (phase_ != Phase::kFull || !parts_.predicts()) return false;
  if (parts_.recovery.forces_full(parts_.statistics.steps())) return false;
  const std::int64_t to_come = parts_.config().full_steps - parts_.steps_in_phase;
  return to_come <= parts_.slopes_needed() && parts_.grant().open;
}

/// Without what a prediction needs where a step does not fit beside it.
GradientMeasurement UpdateExecutor::measure(const Batch& batch, PhaseOutcome& outcome) {
  try {
    return parts_.model.wait_for_gradient(batch);
  } catch (const OutOfMemory& error) {
    if (!parts_.predicts()) throw;
    parts_.give_up_predicting(error, outcome);
  }
  return parts_.model.wait_for_gradient(batch);
}

/// A slope of exactly 0 along a direction that is to move weights says that there is none.
void UpdateExecutor::take_slope(const GradientMeasurement& measurement, PhaseOutcome& outcome) {
  double slope = 0;
  try {
    slope = parts_.line.wait_for_slope(parts_.model);
  } catch (const OutOfMemory& error) {
    return parts_.give_up_predicting(error, outcome);
  }
  if (!parts_.line.moves() || (slope != 0 && std::isfinite(slope))) {
    parts_.trust.add(slope);
  } else {
    parts_.trust.clear();
    const bool has_updated = std::isfinite(parts_.monitor.mean_loss());
    if (has_updated && measurement.norm > 0) parts_.tell_no_direction(outcome);
  }
  outcome.confidence = parts_.trust.confidence();
}

void UpdateExecutor::enter(PhaseOutcome& outcome) {
  if (phase_ != Phase::kWarmup) parts_.finder.leave_warmup(outcome);
  parts_.enter_model(phase_);
}

void UpdateExecutor::run(const Batch& batch, PhaseOutcome& outcome) {
  if (phase_ == Phase::kWarmup)
    parts_.finder.begin_step(parts_.model, batch, parts_.statistics.steps(), outcome);
  bool aimed = wants_slope() && parts_.aim(outcome);
  if (!aimed) {  // older slopes would mean nothing
    parts_.line.release(parts_.model);
    parts_.trust.clear();
  }
  const GradientMeasurement measurement = measure(batch, outcome);
  aimed = aimed && parts_.predicts();
  outcome.cost += 1;
  if (aimed && measurement.finite()) take_slope(measurement, outcome);
  update(parts_, measurement, outcome);
  if (phase_ == Phase::kWarmup) parts_.finder.add_updates(outcome.updates);
  if (phase_ == Phase::kFull && outcome.updates > 0 && parts_.predicts()) {
    parts_.gate.add_full_loss(outcome.loss);
  }
}

}  // namespace hybrid_trainer
