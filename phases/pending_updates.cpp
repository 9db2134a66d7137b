#include "phases/pending_updates.h"

#include "phases/update.h"

namespace hybrid_trainer {

void judge_update(PhaseParts& parts, const DelayedUpdate& arrived,
                  const PredictionErrorLimit& limit, PhaseOutcome& outcome) {
  const PhaseConfig& config = parts.config();
  outcome.lag = arrived.lag;
  if (arrived.is_late && parts.steps_in_phase == 0) {
    tell(outcome,
         concat("updates arrive ", config.delay(), config.delay() == 1 ? " step" : " steps",
                " late, for at most ", config.max_predict_steps, " steps"));
  }
  outcome.prediction_error = arrived.prediction_error;
  const bool is_limited = limit.share > 0 && limit.forecasts;
  if (!is_limited || arrived.prediction_error.value_or(0) <= limit.share) return;
  parts.stops_predict = true;
  outcome.warns = true;
  tell(outcome,
       concat("predicted updates were off by ", brief(*arrived.prediction_error),
              " of the exact ones' size, most in ", arrived.worst_weight, ", above phases.",
              config.method, ".prediction_error_limit ", limit.share,
              "; none is late for the next ", config.correct_steps + config.full_steps, " steps"));
}

}  // namespace hybrid_trainer
