#include "hybrid_trainer/phases/phase_machine.h"

#include <utility>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/phases/phase_controller.h"
#include "phases/phase_executor.h"
#include "phases/phase_parts.h"

namespace hybrid_trainer {
namespace {

std::string refusal(const PhaseSignals& signals) {
  if (!signals.healthy) return "no prediction: this step had a warning";
  return concat("no prediction: confidence ", brief(signals.confidence), " is below ",
                signals.least_confidence);
}

}  // namespace

/// Predict where nothing is predicted of backward.
static std::unique_ptr<PhaseExecutor> make_late_predict(PhaseParts& parts) {
  const PhaseConfig& config = parts.config();
  if (config.trains_locally()) return std::make_unique<LocalStepExecutor>(parts);
  if (config.delays_gradients()) return std::make_unique<OwnGradientExecutor>(parts);
  return std::make_unique<SpeculateExecutor>(parts);
}

PhaseMachine::PhaseMachine(Trainable& model, const Setup& setup)
    : parts_(std::make_unique<PhaseParts>(model, setup)),
      executors_{std::make_unique<UpdateExecutor>(*parts_, Phase::kWarmup),
                 std::make_unique<UpdateExecutor>(*parts_, Phase::kFull)} {
  auto& predict = executors_[static_cast<std::size_t>(Phase::kPredict)];
  auto& correct = executors_[static_cast<std::size_t>(Phase::kCorrect)];
  if (setup.phases.skips_backward()) {
    predict = std::make_unique<PredictExecutor>(*parts_);
    correct = std::make_unique<CorrectExecutor>(*parts_);
  } else {
    predict = make_late_predict(*parts_);
    correct = std::make_unique<ExactExecutor>(*parts_);
  }
}

PhaseMachine::~PhaseMachine() = default;
PhaseMachine::PhaseMachine(PhaseMachine&&) noexcept = default;
PhaseMachine& PhaseMachine::operator=(PhaseMachine&&) noexcept = default;

Phase PhaseMachine::phase() const { return parts_->phase; }

std::int64_t PhaseMachine::undecided_steps() const {
  return parts_->jump.open ? parts_->jump.steps : 0;
}

void PhaseMachine::give_up_predicting() {
  parts_->give_up_predicting();
  if (parts_->phase == Phase::kPredict && !parts_->is_in_predict()) parts_->begin(Phase::kFull);
}

const PhaseStatistics& PhaseMachine::statistics() const { return parts_->statistics; }

void PhaseMachine::save(State& state) const { parts_->save(state); }

void PhaseMachine::load(const State& state) { parts_->load(state); }

void PhaseMachine::settle(PhaseOutcome& outcome) {
  if (!parts_->is_in_predict() || !parts_->config().runs_ahead_of_ranks()) return;
  hybrid_trainer::settle(*parts_, outcome);
  if (!std::exchange(parts_->stops_speculating, false) || parts_->phase != Phase::kPredict) return;
  parts_->begin(Phase::kCorrect);
}

bool PhaseMachine::is_healthy() const { return severity_of(parts_->signal) < Severity::kWarning; }

PhaseOutcome PhaseMachine::step(const Batch& batch) {
  PhaseOutcome outcome;
  step(batch, outcome);
  return outcome;
}

void PhaseMachine::step(const Batch& batch, PhaseOutcome& outcome) {
  const auto start = Clock::now();
  PhaseParts& parts = *parts_;
  end_predicting_in_time();
  outcome.tokens = batch.tokens();
  parts.full_flops = parts.model.step_flops(batch);
  make_step(batch, outcome);
  if (parts.finder.is_on()) outcome.rate_factor = parts.finder.factor();
  PhaseTotals& totals = parts.statistics.of(outcome.phase);
  ++totals.steps;
  totals.tokens += outcome.tokens;
  totals.cost += outcome.cost;
  advance(outcome);
  outcome.seconds = seconds_since(start);
  totals.seconds += outcome.seconds;
}

/// The last step of the run decides, also where the run was made shorter meanwhile.
void PhaseMachine::end_predicting_in_time() {
  if (parts_->phase != Phase::kPredict || parts_->steps_to_come() > 1) return;
  parts_->begin(parts_->is_in_predict() ? Phase::kCorrect : Phase::kFull);
}

/// In the phase that is due, or in the one that it turns out to be of.
void PhaseMachine::make_step(const Batch& batch, PhaseOutcome& outcome) {
  PhaseParts& parts = *parts_;
  do {
    outcome.phase = parts.phase;
    PhaseExecutor& executor = *executors_[static_cast<std::size_t>(parts.phase)];
    if (!parts.has_entered || parts.entered != outcome.phase) {
      executor.enter(outcome);
      parts.entered = outcome.phase;
      parts.has_entered = true;
    }
    if (parts.phase == outcome.phase) executor.run(batch, outcome);
  } while (parts.phase != outcome.phase);
}

/// Reports what the gate has measured and, in one line, when the gate's verdict has changed: why Predict is entered or not.
void PhaseMachine::tell_verdict(PhaseOutcome& outcome) {
  PhaseParts& parts = *parts_;
  if (outcome.phase != Phase::kFull || !parts.predicts() || !parts.gate.ready()) return;
  outcome.advantage = parts.gate.advantage();
  const PredictGate::Verdict verdict = parts.gate.verdict();
  if (verdict == parts.verdict) return;
  parts.verdict = verdict;
  tell(outcome, parts.gate.explanation());
}

/// Chooses the phase of the next step.
void PhaseMachine::advance(PhaseOutcome& outcome) {
  PhaseParts& parts = *parts_;
  parts.gate.add_step();
  PhaseSignals signals;
  signals.steps_in_phase = ++parts.steps_in_phase;
  signals.planned_predict = parts.jump.planned_steps;
  const PredictGate::Grant grant = parts.grant();
  signals.steps_to_come = parts.steps_to_come();
  const std::int64_t steps = parts.statistics.steps();
  const bool forces_full = parts.recovery.forces_full(steps);
  signals.may_predict = parts.predicts() && !forces_full && grant.open && parts.gate.ready() &&
                        parts.trust.count() >= parts.slopes_needed();
  signals.trial_overdue =
      grant.overdue && parts.predicts() && !parts.recovery.raises_threshold(steps);
  signals.least_confidence =
      parts.recovery.threshold(parts.config().skip_backward.confidence_threshold, steps);
  signals.healthy = parts.signal == Signal::kNone;
  signals.confidence = parts.trust.confidence();
  signals.stop_predict = parts.jump.stop || std::exchange(parts.stops_speculating, false);
  if (!parts.config().skips_backward()) {
    signals.planned_predict = parts.recovery.shortened(parts.config().max_predict_steps, steps);
    signals.may_predict = parts.speculates() && !forces_full;
    signals.trial_overdue = true;  // neither confidence nor gate decides on late updates
  }
  const Phase next = next_phase(parts.phase, signals, parts.config());
  const bool refused = next == Phase::kFull && parts.phase == Phase::kFull && signals.may_predict &&
                       signals.steps_in_phase >= parts.config().full_steps;
  if (refused) tell(outcome, refusal(signals));
  tell_verdict(outcome);
  if (refused || next != parts.phase) parts.steps_in_phase = 0;
  parts.phase = next;
}

}  // namespace hybrid_trainer
