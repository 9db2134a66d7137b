#include "phases/phase_parts.h"

#include <algorithm>
#include <limits>

#include "phases/methods.h"
#include "phases/state_fields.h"
#include "phases/update.h"

namespace hybrid_trainer {
namespace {

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
  visit("phases.lacks_room", parts.lacks_room);
}

}  // namespace

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

std::int64_t PhaseParts::steps_to_come() const {
  if (setup.steps == 0) return std::numeric_limits<std::int64_t>::max();
  return std::max<std::int64_t>(0, setup.steps - statistics.steps());
}

void PhaseParts::enter_model(Phase wanted) {
  model.enter_phase(wanted);
  model_phase = wanted;
}

void PhaseParts::turn_to(Phase other, PhaseOutcome& outcome) {
  begin(other);
  outcome.gradient_norm = outcome.predicted_loss = outcome.confidence = {};
  outcome.predictor.clear();
  outcome.planned_steps = 0;
}

OutOfMemory with_way_out(const OutOfMemory& error, const char* way_out) {
  return {concat(error.what(), "; ", way_out), error.requested_bytes(), error.available_bytes(),
          error.shortage()};
}

void PhaseParts::give_up_predicting() {
  lacks_room = true;
  method->give_up();
}

void PhaseParts::give_up_predicting(const OutOfMemory& error, PhaseOutcome& outcome) {
  if (model.is_one_of_several())
    throw with_way_out(error, "phases.max_predict_steps=0 trains without predictions");
  give_up_predicting();
  outcome.warns = true;
  tell(outcome, concat("no predictions from here on: ", error.what()));
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
  // A prediction that was due and had not begun, where the run predicts no more.
  const bool predicts_no_more = config().max_predict_steps == 0 && method->undecided_steps() == 0;
  if (phase == Phase::kPredict && predicts_no_more) phase = Phase::kFull;
  if (has_entered) model.enter_phase(model_phase);
}

}  // namespace hybrid_trainer
