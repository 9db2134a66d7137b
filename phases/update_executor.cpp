#include "hybrid_trainer/core/error.h"
#include "phases/phase_executor.h"

namespace hybrid_trainer {

void tell(PhaseOutcome& outcome, const std::string& text) {
  if (!outcome.event.empty()) outcome.event += "; ";
  outcome.event += text;
}

void update(PhaseParts& parts, const GradientMeasurement& measurement, PhaseOutcome& outcome,
            const std::function<void(bool finite)>& apply) {
  outcome.loss = measurement.loss;
  outcome.gradient_norm = measurement.norm;
  const Verdict verdict = parts.monitor.assess(measurement);
  parts.signal = verdict.signal;
  const std::int64_t most = parts.setup.divergence.max_skipped_updates;
  const bool finite = verdict.signal != Signal::kNotFinite;
  if (!finite) {
    ++parts.statistics.skipped_updates;
    if (++parts.skipped_in_a_row > most) {
      throw Diverged(concat("training diverged: ", verdict.reason, ", ", parts.skipped_in_a_row,
                            " updates in a row, more than divergence.max_skipped_updates = ", most,
                            "; the weights are those of the last good update; lower "
                            "optimizer.learning_rate or look into the data"));
    }
  }
  if (apply) {
    apply(finite);
  } else if (finite) {
    parts.model.apply_gradient();
  }
  if (finite) {
    parts.monitor.observe(measurement);
    parts.skipped_in_a_row = 0;
    ++outcome.updates;
    parts.observe_update(outcome);
    if (verdict.normal()) return;
    outcome.warns = true;
    tell(outcome, "warning: " + verdict.reason);
    return;
  }
  outcome.warns = true;
  tell(outcome, concat("skipped the update: ", verdict.reason, " (", parts.skipped_in_a_row, " of ",
                       most, " in a row)"));
}

bool UpdateExecutor::wants_slope() const {
  if (phase_ != Phase::kFull || !parts_.predicts()) return false;
  const std::int64_t to_come = parts_.config().full_steps - parts_.steps_in_phase;
  return to_come <= parts_.slopes_needed() && parts_.gate.grant().open;
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
  if (aimed && measurement.finite()) {
    parts_.trust.add(parts_.line.wait_for_slope(parts_.model));
    outcome.confidence = parts_.trust.confidence();
  }
  update(parts_, measurement, outcome);
  if (phase_ == Phase::kWarmup) parts_.finder.add_updates(outcome.updates);
  if (phase_ == Phase::kFull && outcome.updates > 0 && parts_.predicts()) {
    parts_.gate.add_full_loss(outcome.loss);
  }
}

}  // namespace hybrid_trainer
