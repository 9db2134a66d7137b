#include "hybrid_trainer/phases/phase_outcome.h"

#include "phases/state_fields.h"

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

}  // namespace hybrid_trainer
