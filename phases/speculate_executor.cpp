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
    tell(outcome,
         concat("updates arrive ", config.delay(), config.delay() == 1 ? " step" : " steps",
                " late, for at most ", config.max_predict_steps, " steps"));
  }
  outcome.prediction_error = arrived.prediction_error;
  const double limit = config.delays_gradients()
                           ? config.asynchronous_gradients.prediction_error_limit
                           : config.asynchronous_optimizer.prediction_error_limit;
  const bool forecasts = config.delays_gradients()
                             ? config.asynchronous_gradients.forecasts_updates()
                             : config.asynchronous_optimizer.forecasts_updates();
  if (!(limit > 0 && forecasts) || arrived.prediction_error.value_or(0) <= limit) return;
  parts_.stops_speculating = true;
  outcome.warns = true;
  tell(outcome,
       concat("predicted updates were off by ", brief(*arrived.prediction_error),
              " of the exact ones' size, most in ", arrived.worst_weight, ", above phases.",
              config.method, ".prediction_error_limit ", limit, "; none is late for the next ",
              config.correct_steps + config.full_steps, " steps"));
}

}  // namespace hybrid_trainer
