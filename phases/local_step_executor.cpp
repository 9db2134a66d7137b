#include "hybrid_trainer/core/error.h"
#include "phases/phase_executor.h"

namespace hybrid_trainer {

void LocalStepExecutor::run(const Batch& batch, PhaseOutcome& outcome) {
  const LocalStep step = parts_.model.support().local->wait_for_step(batch);
  outcome.cost += 1;
  outcome.loss = step.own.loss;
  outcome.gradient_norm = step.own.norm;
  outcome.lag = step.since_exchange;
  outcome.updates = step.own.finite() ? 1 : 0;
  tell_skipped(parts_, step, outcome);
}

void tell_skipped(PhaseParts& parts, const LocalStep& step, PhaseOutcome& outcome) {
  if (step.skipped == 0) return;
  parts.statistics.skipped_updates += step.skipped;
  outcome.warns = true;
  const std::string text =
      concat(step.skipped, " of ", step.steps,
             " steps that ranks made by themselves had a loss or gradient that is not finite");
  tell(outcome, text + ", and made no update");
  if (step.skipped < step.steps) return;
  outcome.recovery = Recovery::kAbort;
  throw Diverged(concat("training diverged: ", text,
                        "; the weights are those of the last good update; lower "
                        "optimizer.learning_rate or look into the data"));
}

}  // namespace hybrid_trainer
