#include "phases/skip_backward/full_executor.h"

#include <cmath>

#include "phases/update.h"

namespace hybrid_trainer {

bool FullExecutor::wants_slope() const {
  if (parts_.phase != Phase::kFull || !prediction_.predicts()) return false;
  if (parts_.recovery.forces_full(parts_.statistics.steps())) return false;
  const std::int64_t to_come = parts_.config().full_steps - parts_.steps_in_phase;
  return to_come <= prediction_.slopes_needed() && prediction_.grant().open;
}

/// A slope of exactly 0 along a direction that is to move weights says that there is none.
void FullExecutor::take_slope(const GradientMeasurement& measurement, PhaseOutcome& outcome) {
  double slope = 0;
  try {
    slope = prediction_.line.wait_for_slope(parts_.model);
  } catch (const OutOfMemory& error) {
    return parts_.give_up_predicting(error, outcome);
  }
  if (!prediction_.line.moves() || (slope != 0 && std::isfinite(slope))) {
    prediction_.trust.add(slope);
  } else {
    prediction_.trust.clear();
    const bool has_updated = std::isfinite(parts_.monitor.mean_loss());
    if (has_updated && measurement.norm > 0) prediction_.tell_no_direction(outcome);
  }
  outcome.confidence = prediction_.trust.confidence();
}

void FullExecutor::run(const Batch& batch, PhaseOutcome& outcome) {
  bool aimed = wants_slope() && prediction_.aim(outcome);
  if (!aimed) prediction_.forget_direction();  // older slopes would mean nothing
  GradientMeasurement measurement;
  try {
    measurement = parts_.model.wait_for_gradient(batch);
  } catch (const OutOfMemory& error) {
    if (!prediction_.predicts()) throw;
    parts_.give_up_predicting(error, outcome);
    measurement =
        parts_.model.wait_for_gradient(batch);  // without what a prediction needs beside it
  }
  aimed = aimed && prediction_.predicts();
  outcome.cost += 1;
  if (aimed && measurement.finite()) take_slope(measurement, outcome);
  update(parts_, measurement, outcome);
  if (parts_.phase == Phase::kFull && outcome.updates > 0 && prediction_.predicts())
    prediction_.gate.add_full_loss(outcome.loss);
}

}  // namespace hybrid_trainer
