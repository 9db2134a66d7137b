#include "phases/phase_parts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "phases/phase_executor.h"
#include "phases/state_fields.h"

namespace hybrid_trainer {
namespace {

template <class Parts, class Visit>
void visit_parts(Parts& parts, const Visit& visit) {
  visit("phases.phase", parts.phase);
  visit("phases.entered", parts.entered);
  visit("phases.model_phase", parts.model_phase, Since::kLater);
  visit("phases.has_entered", parts.has_entered);
  visit("phases.steps_in_phase", parts.steps_in_phase);
  visit("phases.skipped_in_a_row", parts.skipped_in_a_row);
  visit("phases.signal", parts.signal);
  visit("phases.warnings_in_a_row", parts.warnings_in_a_row, Since::kLater);
  visit("phases.lacks_room", parts.lacks_room, Since::kLater);
  visit("phases.told_no_direction", parts.told_no_direction, Since::kLater);
  visit("phases.aim_cost", parts.aim_cost, Since::kLater);
  visit("phases.verdict", parts.verdict, Since::kLater);
  visit("phases.jump.open", parts.jump.open);
  visit("phases.jump.planned_steps", parts.jump.planned_steps);
  visit("phases.jump.steps", parts.jump.steps);
  visit("phases.jump.step_length", parts.jump.step_length);
  visit("phases.jump.limit", parts.jump.limit);
  visit("phases.jump.start_loss", parts.jump.start_loss);
  visit("phases.jump.mean_loss", parts.jump.mean_loss, Since::kLater);
  visit("phases.jump.slope", parts.jump.slope);
  visit("phases.jump.curvature", parts.jump.curvature);
  visit("phases.jump.confidence", parts.jump.confidence);
  visit("phases.jump.cost", parts.jump.cost);
  visit("phases.jump.trial", parts.jump.trial);
  visit("phases.jump.stop", parts.jump.stop);
  visit("phases.jump.failed", parts.jump.failed, Since::kLater);
  visit("phases.jump.lacks_room", parts.jump.lacks_room, Since::kLater);
}

}  // namespace

PhaseParts::PhaseParts(Trainable& trained, const PhaseMachine::Setup& given)
    : model(trained),
      setup(given),
      monitor(given.divergence),
      predictors(given.phases.skip_backward, given.make_predictor),
      advisors(make_jump_advisors(given.phases)),
      trust(given.phases.skip_backward.confidence_window),
      gate(given.phases),
      finder({given.learning_rate_finder, given.ramp_steps, given.phases.forward_cost}) {
  if (config().warmup_steps == 0) phase = Phase::kFull;
  take_choice();
}

void PhaseParts::take_choice() {
  for (const auto& advisor : advisors) {
    const auto choice = advisor->choice();
    if (!choice) continue;
    predictors.choose(choice->arm.predictor);
    gate.plan(choice->arm.steps, choice->step_length);
  }
}

PredictorSet PhaseParts::new_predictors() const {
  PredictorSet made(config().skip_backward, setup.make_predictor);
  made.choose(predictors.name());
  return made;
}

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
  if (jump.open) return;
  line.release(model);
  predictors = new_predictors();
}

void PhaseParts::give_up_predicting(const OutOfMemory& error, PhaseOutcome& outcome) {
  if (model.is_one_of_several())
    throw with_way_out(error, "phases.max_predict_steps=0 trains without predictions");
  give_up_predicting();
  outcome.warns = true;
  tell(outcome, concat("no predictions from here on: ", error.what()));
}

void PhaseParts::tell_no_direction(PhaseOutcome& outcome) {
  if (std::exchange(told_no_direction, true)) return;
  outcome.warns = true;
  tell(outcome, concat("no prediction: the direction of phases.skip_backward.predictor \"",
                       predictors.name(),
                       "\" is zero or not finite. Optimizers without momentum (adafactor, sgd with "
                       "momentum 0) give \"momentum\" and \"random\" nothing to predict from; "
                       "\"linear\" and \"merged\" need none, and phases.max_predict_steps=0 trains "
                       "without predictions"));
}

void PhaseParts::observe_update(PhaseOutcome& outcome) {
  if (!predicts()) return;
  try {
    predictors.observe(model);
  } catch (const OutOfMemory& error) {
    give_up_predicting(error, outcome);
  }
}

bool PhaseParts::aim(PhaseOutcome& outcome) {
  try {
    if (!line.aim(model, predictors.chosen())) return false;
    if (!has_held_snapshot) {
      model.rollback().save_snapshot();
      model.rollback().drop_snapshot();
      has_held_snapshot = true;
    }
  } catch (const OutOfMemory& error) {
    give_up_predicting(error, outcome);
    return false;
  }
  if (!line.moves()) return true;
  outcome.cost += config().skip_backward.aim_cost;
  aim_cost += config().skip_backward.aim_cost;
  return true;
}

void PhaseParts::advise_of_update(const GradientMeasurement& measurement, PhaseOutcome& outcome) {
  if (!predicts()) return;
  for (const auto& advisor : advisors) {
    const auto steps = static_cast<double>(statistics.steps() + 1);
    const double extra = statistics.cost() + outcome.cost - steps;
    const bool pays = gate.verdict() == PredictGate::Verdict::kAhead;
    advisor->see_update(measurement, {full_flops, steps, extra, statistics.planning_cost, pays});
    charge(*advisor, outcome);
  }
}

void PhaseParts::charge(JumpAdvisor& advisor, PhaseOutcome& outcome) {
  const auto cost = advisor.take_cost(full_flops);
  if (!cost) return;
  outcome.planning_cost = outcome.planning_cost.value_or(0) + *cost;
  outcome.cost += *cost;
  aim_cost += *cost;
  statistics.planning_cost += *cost;
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
  if (action.kind == Recovery::kForceFull) stops_speculating = true;
  if (action.kind == Recovery::kResetPredictor) {
    predictors = new_predictors();
    if (jump.open) return action;  // its directions are decided on first
    line.release(model);
    trust.clear();
  }
  return action;
}

PredictGate::Grant PhaseParts::grant() const {
  PredictGate::Grant grant = gate.grant();
  const bool is_first = statistics.predictions.made == 0 && !told_no_direction;
  const bool is_free = is_first && (setup.steps == 0 || config().skip_backward.trial_share == 0);
  if (!grant.trial || is_free) return grant;
  // The first one tells whether to predict at all, so that the whole run may pay for it.
  const std::int64_t steps = is_first ? setup.steps : statistics.steps();
  const double charged = statistics.cost() - static_cast<double>(statistics.steps());
  const double room = 2 * config().skip_backward.trial_share * static_cast<double>(steps);
  if (charged + price_of(grant) > room) grant.open = grant.overdue = false;
  return grant;
}

double PhaseParts::price_of(const PredictGate::Grant& grant) const {
  const std::int64_t probes = std::min(config().skip_backward.probe_batches, grant.steps);
  const std::int64_t forwards = grant.steps + (2 + config().skip_backward.max_shrinks) * probes;
  const std::int64_t slopes = std::max<std::int64_t>(0, slopes_needed() - trust.count());
  const std::int64_t aims = slopes + 1;  // and where Predict begins
  const std::int64_t interval = config().skip_backward.correction_interval;
  const std::int64_t gradients = 1 + (interval > 0 ? grant.steps / interval : 0);
  double advice = 0;
  for (const auto& advisor : advisors) advice += advisor->price_of(grant.steps, full_flops);
  return advice + static_cast<double>(aims) * config().skip_backward.aim_cost +
         static_cast<double>(forwards) * config().forward_cost + static_cast<double>(gradients);
}

std::int64_t PhaseParts::slopes_needed() const {
  return std::max<std::int64_t>(
      2, std::min(config().skip_backward.confidence_window, config().full_steps));
}

/// Predictors that memory is too short to move along begin anew: half moved they would be wrong.
void PhaseParts::follow_jump() {
  if (line.position() != 0) model.weights().follow(line.directions(), line.position());
  try {
    predictors.follow(model, line.directions(), line.position());
  } catch (const OutOfMemory&) {
    if (model.is_one_of_several()) throw;
    predictors = new_predictors();
  }
}

void PhaseParts::close_jump() {
  jump.batches.clear();
  gate.finish_jump(jump);
  jump.left_at = line.position();
  jump.next_step_length = gate.step_length();
  for (const auto& advisor : advisors) advisor->see_jump(jump);
  auto& counts = statistics.predictions;
  counts.accepted += jump.decision == Decision::kAccepted;
  counts.shrunk += jump.decision == Decision::kShrunk;
  counts.reverted += jump.decision == Decision::kReverted;
  statistics.predicted_gain += jump.paired_drop;
  jump = {};
  if (line.moves()) follow_jump();
  line.release(model);
  trust.clear();
  if (lacks_room) predictors = new_predictors();
  take_choice();
}

void PhaseParts::save(State& state) const {
  visit_parts(*this, StateWriter{state});
  RecoveryEffects::visit_state(recovery, StateWriter{state});
  monitor.save(state);
  predictors.save(state);
  for (const auto& advisor : advisors) advisor->save(state);
  trust.save(state);
  gate.save(state);
  line.save(state);
  finder.save(state);
  statistics.save(state);
  save_batches(state, "phases.batch", jump.batches);
}

void PhaseParts::load(const State& state) {
  jump = {};
  stops_speculating = false;
  visit_parts(*this, StateReader{state});
  RecoveryEffects::visit_state(recovery, StateReader{state});
  if (!state.integers.contains("phases.model_phase")) model_phase = entered;
  if (!state.reals.contains("phases.jump.mean_loss")) jump.mean_loss = jump.start_loss;
  monitor.load(state);
  predictors = new_predictors();
  const bool predicts = config().max_predict_steps > 0 || jump.open;
  if (predicts) predictors.load(state, model);  // else they would only take memory
  for (const auto& advisor : advisors) advisor->load(state);
  trust.load(state);
  gate.load(state);
  take_choice();
  if (predicts) line.load(state, model);
  finder.load(state, model);
  statistics.load(state);
  jump.batches = load_batches(state, "phases.batch", model);
  // A prediction that was due and had not begun, where the run predicts no more.
  if (phase == Phase::kPredict && !jump.open && config().max_predict_steps == 0)
    phase = Phase::kFull;
  if (has_entered) model.enter_phase(model_phase);
}

}  // namespace hybrid_trainer
