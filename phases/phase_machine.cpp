#include "hybrid_trainer/phases/phase_machine.h"

#include "phases/method.h"
#include "phases/phase_parts.h"
#include "src/core/clock.h"

namespace hybrid_trainer {

namespace {

template <class Statistics, class Visit>
void visit_statistics(Statistics& statistics, const Visit& visit) {
  for (const Phase phase : kAllPhases) {
    auto& totals = statistics.of(phase);
    const std::string name = concat("phases.statistics.", name_of(phase));
    visit(name + ".steps", totals.steps);
    visit(name + ".tokens", totals.tokens);
    visit(name + ".seconds", totals.seconds);
    visit(name + ".cost", totals.cost);
  }
  visit("phases.statistics.made", statistics.predictions.made);
  visit("phases.statistics.accepted", statistics.predictions.accepted);
  visit("phases.statistics.shrunk", statistics.predictions.shrunk);
  visit("phases.statistics.reverted", statistics.predictions.reverted);
  visit("phases.statistics.trials", statistics.trials);
  visit("phases.statistics.micro_corrections", statistics.micro_corrections);
  visit("phases.statistics.skipped_updates", statistics.skipped_updates);
  visit("phases.statistics.predicted_gain", statistics.predicted_gain);
  visit("phases.statistics.planning_cost", statistics.planning_cost);
}

std::string refusal(const PhaseSignals& signals) {
  if (!signals.healthy) return "no prediction: this step had a warning";
  return concat("no prediction: confidence ", brief(signals.confidence), " is below ",
                signals.min_confidence);
}

}  // namespace

std::int64_t PhaseStatistics::steps() const {
  std::int64_t sum = 0;
  for (const PhaseTotals& totals : phases) sum += totals.steps;
  return sum;
}

double PhaseStatistics::cost() const {
  double sum = 0;
  for (const PhaseTotals& totals : phases) sum += totals.cost;
  return sum;
}

void PhaseStatistics::save(State& state) const { visit_statistics(*this, StateWriter{state}); }

void PhaseStatistics::load(const State& state) { visit_statistics(*this, StateReader{state}); }

PhaseMachine::PhaseMachine(Trainable& model, const Setup& setup)
    : parts_(std::make_unique<PhaseParts>(model, setup)) {}

PhaseMachine::~PhaseMachine() = default;
PhaseMachine::PhaseMachine(PhaseMachine&&) noexcept = default;
PhaseMachine& PhaseMachine::operator=(PhaseMachine&&) noexcept = default;

Phase PhaseMachine::phase() const { return parts_->phase; }

std::int64_t PhaseMachine::undecided_steps() const { return parts_->method->undecided_steps(); }

void PhaseMachine::disable_prediction() {
  parts_->disable_prediction();
  if (parts_->phase == Phase::kPredict && !parts_->is_in_predict()) parts_->begin(Phase::kFull);
}

const PhaseStatistics& PhaseMachine::statistics() const { return parts_->statistics; }

void PhaseMachine::save(State& state) const { parts_->save(state); }

void PhaseMachine::load(const State& state) { parts_->load(state); }

void PhaseMachine::drain(PhaseOutcome& outcome) {
  if (!parts_->is_in_predict()) return;
  parts_->method->drain(outcome);
  if (!std::exchange(parts_->stops_predict, false) || parts_->phase != Phase::kPredict) return;
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
  finish_last_prediction();
  outcome.tokens = batch.tokens();
  parts.full_flops = parts.model.step_flops(batch);
  do {  // repeats if the step turns into one of another phase
    enter_due_phase(outcome);
    if (parts.phase != outcome.phase) continue;
    switch (outcome.phase) {
      case Phase::kWarmup:
        parts.finder.begin_step(parts.model, batch, parts.statistics.steps(), outcome);
        parts.method->train(batch, outcome);
        parts.finder.add_updates(outcome.updates);
        break;
      case Phase::kFull: parts.method->train(batch, outcome); break;
      case Phase::kPredict: parts.method->predict(batch, outcome); break;
      case Phase::kCorrect: parts.method->correct(batch, outcome); break;
    }
  } while (parts.phase != outcome.phase);
  finish_step(outcome, seconds_since(start));
}

void PhaseMachine::finish_step(PhaseOutcome& outcome, double seconds) {
  PhaseParts& parts = *parts_;
  if (parts.finder.is_on()) outcome.rate_factor = parts.finder.factor();
  PhaseTotals& totals = parts.statistics.of(outcome.phase);
  ++totals.steps;
  totals.tokens += outcome.tokens;
  totals.cost += outcome.cost;
  advance(outcome);
  outcome.seconds = seconds;
  totals.seconds += outcome.seconds;
}

/// Decides on a prediction in the last step of the run, even if the run was shortened.
void PhaseMachine::finish_last_prediction() {
  if (parts_->phase != Phase::kPredict || parts_->remaining_steps() > 1) return;
  parts_->begin(parts_->is_in_predict() ? Phase::kCorrect : Phase::kFull);
}

void PhaseMachine::enter(Phase phase, PhaseOutcome& outcome) {
  if (phase == Phase::kPredict) return parts_->method->enter_predict(outcome);
  if (phase == Phase::kCorrect) return parts_->method->enter_correct(outcome);
  if (phase == Phase::kFull) parts_->finder.leave_warmup(outcome);
  parts_->enter_model(phase);
}

void PhaseMachine::enter_due_phase(PhaseOutcome& outcome) {
  PhaseParts& parts = *parts_;
  outcome.phase = parts.phase;
  if (parts.has_entered && parts.entered == outcome.phase) return;
  enter(outcome.phase, outcome);
  parts.entered = outcome.phase;
  parts.has_entered = true;
}

void PhaseMachine::advance(PhaseOutcome& outcome) {
  PhaseParts& parts = *parts_;
  PhaseSignals signals;
  signals.steps_in_phase = ++parts.steps_in_phase;
  signals.remaining_steps = parts.remaining_steps();
  signals.healthy = parts.signal == Signal::kNone;
  signals.stop_predict = std::exchange(parts.stops_predict, false);
  parts.method->allow(signals);
  const Phase next = next_phase(parts.phase, signals, parts.config());
  const bool refused = next == Phase::kFull && parts.phase == Phase::kFull && signals.may_predict &&
                       signals.steps_in_phase >= parts.config().full_steps;
  if (refused) add_event(outcome, refusal(signals));
  parts.method->report(outcome);
  if (refused || next != parts.phase) parts.steps_in_phase = 0;
  parts.phase = next;
}

}  // namespace hybrid_trainer
