#include "phases/update.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "phases/method.h"

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

/// No failure: the next step's gradient is scaled by less.
void skip_overflow(PhaseParts& parts, double loss_scale, PhaseOutcome& outcome,
                   const std::function<void(bool applies)>& apply) {
  parts.signal = Signal::kNone;
  if (apply) apply(false);
  tell(outcome,
       concat("the gradient overflowed in fp16: skipped the update, and the loss scale is ",
              loss_scale, " from here on"));
}

}  // namespace

void update(PhaseParts& parts, const GradientMeasurement& measurement, PhaseOutcome& outcome,
            const std::function<void(bool applies)>& apply) {
  outcome.loss = measurement.loss;
  if (measurement.lowered_loss_scale)
    return skip_overflow(parts, *measurement.lowered_loss_scale, outcome, apply);
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
    parts.skipped_in_a_row = 0;
    ++outcome.updates;
    parts.method->see_update(measurement, outcome);
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
