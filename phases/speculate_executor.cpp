#include "phases/phase_executor.h"

namespace hybrid_trainer {

void SpeculateExecutor::run(const Batch& batch, PhaseOutcome& outcome) {
  const GradientMeasurement measurement = parts_.model.wait_for_gradient(batch);
  outcome.cost += 1;
  update(parts_, measurement, outcome, [&](bool applies) {
    judge(parts_.model.support().optimizer->wait_for_update(applies), outcome);
  });
}

void SpeculateExecutor::judge(const DelayedUpdate& arrived, PhaseOutcome& outcome) {
  const PhaseConfig& config = parts_.config();
  outcome.lag = arrived.lag;
  if (arrived.is_late && parts_.steps_in_phase == 0) {
    tell(outcome, concat("updates arrive ", config.lag, config.lag == 1 ? " step" : " steps",
                         " late, for at most ", config.max_predict_steps, " steps"));
  }
  outcome.prediction_error = arrived.prediction_error;
  const bool limited = config.prediction_error_limit > 0 && config.forecasts_updates();
  if (!limited || arrived.prediction_error.value_or(0) <= config.prediction_error_limit) return;
  parts_.stops_speculating = true;
  outcome.warns = true;
  tell(outcome,
       concat("predicted updates were off by ", brief(*arrived.prediction_error),
              " of the exact ones' size, most in ", arrived.worst_weight,
              ", above phases.prediction_error_limit ", config.prediction_error_limit,
              "; none is late for the next ", config.correct_steps + config.full_steps, " steps"));
}

}  // namespace hybrid_trainer
