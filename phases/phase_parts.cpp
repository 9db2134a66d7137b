#include "phases/phase_parts.h"

#include "phases/method.h"

namespace hybrid_trainer {

void add_event(PhaseOutcome& outcome, const std::string& text) {
  if (!outcome.event.empty()) outcome.event += "; ";
  outcome.event += text;
}

namespace {

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
               : concat(", so the run ends (divergence.on_", name_of(action.severity), "=abort)");
  const std::string text = concat("training diverged: ", action.reason, why,
                                  "; the weights are from the last good update");
  outcome.warns = true;
  add_event(outcome, text);
  throw Diverged(text + "; lower optimizer.learning_rate or check the data");
}

/// Skips an update with an overflow, which is not a failure: the next step has a smaller scale.
void skip_overflow(PhaseParts& parts, double loss_scale, PhaseOutcome& outcome,
                   const std::function<void(bool applies)>& apply) {
  parts.signal = Signal::kNone;
  if (apply) apply(false);
  add_event(outcome,
            concat("the gradient overflowed in fp16: skipped the update, and the loss scale is ",
                   loss_scale, " from now on"));
}

template <class Parts, class Visit>
void visit_parts(Parts& parts, const Visit& visit) {
  visit("phases.phase", parts.phase);
  visit("phases.entered", parts.entered);
  visit("phases.model_phase", parts.model_phase);
  visit("phases.has_entered", parts.has_entered);
  visit("phases.steps_in_phase", parts.steps_in_phase);
  visit("phases.skipped_in_a_row", parts.skipped_in_a_row);
  visit("phases.signal", parts.signal);
  visit("phases.warnings_in_a_row", parts.warnings_in_a_row);
  visit("phases.lacks_room", parts.is_out_of_memory);
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
  if (!applies && verdict.signal == Signal::kOscillation) parts.monitor.mark_oscillation_handled();
  if (apply) {
    apply(applies);
  } else if (applies) {
    parts.model.apply_gradient();
  }
  if (applies) {
    parts.monitor.observe(measurement);
    parts.skipped_in_a_row = 0;
    ++outcome.updates;
    parts.method->observe_update(measurement, outcome);
    outcome.recovery = std::max(outcome.recovery, action.kind);
  }
  if (verdict.normal()) return;
  outcome.warns = true;
  add_event(outcome,
            applies ? "warning: " + verdict.reason
                    : concat("skipped the update: ", verdict.reason, " (", parts.skipped_in_a_row,
                             " of ", parts.setup.divergence.max_skipped_updates, " in a row)"));
  if (action.kind != Recovery::kContinue && action.kind != Recovery::kSkipBatch)
    add_event(outcome, action.text());
}

void judge_update(PhaseParts& parts, const ArrivedUpdate& arrived,
                  const PredictionErrorLimit& limit, PhaseOutcome& outcome) {
  const PhaseConfig& config = parts.config();
  const std::int64_t delay = config.traits().delay;
  outcome.lag = arrived.lag;
  if (arrived.is_delayed && parts.steps_in_phase == 0)
    add_event(outcome, concat("updates arrive ", delay, delay == 1 ? " step" : " steps",
                              " late, for at most ", config.max_predict_steps, " steps"));
  outcome.prediction_error = arrived.prediction_error;
  const bool is_limited = limit.share > 0 && limit.forecasts;
  if (!is_limited || arrived.prediction_error.value_or(0) <= limit.share) return;
  parts.stops_predict = true;
  outcome.warns = true;
  add_event(outcome, concat("predicted updates had a relative error of ",
                            brief(*arrived.prediction_error), ", largest in ", arrived.worst_weight,
                            ", above phases.", config.method, ".prediction_error_limit ",
                            limit.share, "; updates are not delayed for the next ",
                            config.correct_steps + config.full_steps, " steps"));
}

PhaseParts::PhaseParts(Trainable& trained, const PhaseMachine::Setup& given)
    : model(trained),
      setup(given),
      monitor(given.divergence),
      finder({given.learning_rate_finder, given.ramp_steps, given.phases.forward_cost}) {
  if (config().warmup_steps == 0) phase = Phase::kFull;
  const auto& rows = setup.methods == nullptr ? methods() : *setup.methods;
  method = named_row(rows, "phases.method", config().method).make(*this);
}

PhaseParts::~PhaseParts() = default;

std::int64_t PhaseParts::remaining_steps() const {
  if (setup.steps == 0) return std::numeric_limits<std::int64_t>::max();
  return std::max<std::int64_t>(0, setup.steps - statistics.steps());
}

void PhaseParts::enter_model(Phase wanted) {
  model.enter_phase(wanted);
  model_phase = wanted;
}

void PhaseParts::switch_to(Phase other, PhaseOutcome& outcome) {
  begin(other);
  outcome.gradient_norm = outcome.predicted_loss = outcome.confidence = {};
  outcome.predictor.clear();
  outcome.planned_steps = 0;
}

OutOfMemory with_hint(const OutOfMemory& error, const char* hint) {
  return {concat(error.what(), "; ", hint), error.requested_bytes(), error.available_bytes(),
          error.shortage()};
}

void PhaseParts::disable_prediction() {
  is_out_of_memory = true;
  method->disable();
}

void PhaseParts::disable_prediction(const OutOfMemory& error, PhaseOutcome& outcome) {
  if (model.is_distributed())
    throw with_hint(error, "phases.max_predict_steps=0 trains without predictions");
  disable_prediction();
  outcome.warns = true;
  add_event(outcome, concat("no predictions from now on: ", error.what()));
}

RecoveryAction PhaseParts::recover(const Verdict& verdict, bool in_predict) {
  if (!in_predict) {
    const bool warns = severity_of(verdict.signal) >= Severity::kWarning;
    warnings_in_a_row = warns ? warnings_in_a_row + 1 : 0;
  }
  RecoveryAction action =
      choose_recovery(verdict, in_predict ? 0 : warnings_in_a_row, setup.divergence);
  if (!action.concerns_predictions()) return in_predict ? RecoveryAction{} : action;
  if (!may_leave_full()) return {};
  recovery.add(action, statistics.steps() + 1);
  if (action.kind == Recovery::kForceFull) stops_predict = true;
  if (action.kind == Recovery::kResetPredictor) method->reset_predictor();
  return action;
}

void PhaseParts::save(State& state) const {
  visit_parts(*this, StateWriter{state});
  RecoveryEffects::visit_state(recovery, StateWriter{state});
  monitor.save(state);
  method->save(state);
  finder.save(state);
  statistics.save(state);
}

void PhaseParts::load(const State& state) {
  stops_predict = false;
  visit_parts(*this, StateReader{state});
  RecoveryEffects::visit_state(recovery, StateReader{state});
  monitor.load(state);
  method->load(state);
  finder.load(state, model);
  statistics.load(state);
  // A due prediction has not begun, and the run no longer predicts.
  const bool predicts_no_more = config().max_predict_steps == 0 && method->undecided_steps() == 0;
  if (phase == Phase::kPredict && predicts_no_more) phase = Phase::kFull;
  if (has_entered) model.enter_phase(model_phase);
}

}  // namespace hybrid_trainer
