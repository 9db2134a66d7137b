#include "phases/method.h"

#include "phases/phase_parts.h"
#include "phases/update.h"

namespace hybrid_trainer {

void Method::allow(PhaseSignals& signals) {
  const std::int64_t steps = parts_.statistics.steps();
  signals.planned_predict = parts_.recovery.shortened(parts_.config().max_predict_steps, steps);
  signals.may_predict = parts_.may_leave_full() && !parts_.recovery.forces_full(steps);
  signals.trial_overdue = true;  // neither confidence nor gate decides
}

void Method::train(const Batch& batch, PhaseOutcome& outcome) {
  outcome.cost += 1;
  update(parts_, parts_.model.wait_for_gradient(batch), outcome);
}

void Method::enter_predict(PhaseOutcome&) { parts_.enter_model(Phase::kPredict); }

void Method::correct(const Batch& batch, PhaseOutcome& outcome) { Method::train(batch, outcome); }

}  // namespace hybrid_trainer
