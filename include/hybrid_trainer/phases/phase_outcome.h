#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"

namespace hybrid_trainer {

/// Outcome of one step.
struct PhaseOutcome {
  Phase phase = Phase::kWarmup;
  double loss = 0;  // mean over the step's batch, at the weights before the step's change
  std::optional<double> gradient_norm;   // where a gradient was taken
  std::optional<double> predicted_loss;  // what `loss` was expected to be, in Predict and Correct
  std::optional<double> confidence;      // in [0, 1], where it was measured
  Decision decision = Decision::kNone;
  double kept_fraction = 0;  // of the predicted change: 1 accepted, in between shrunk, 0 reverted
  std::string predictor;     // in Predict, and of what was decided on
  std::int64_t planned_steps = 0;          // of that prediction
  std::optional<double> advantage;         // see PredictGate, in Full
  std::int64_t lag = 0;                    // updates under way while the step was computed
  std::optional<double> prediction_error;  // of those that arrived in it
  /// Factor of the schedule's learning rate, if a finder may raise it; in a step that probed, where
  /// the loss was lowest, in updates, and what that was charged, included in `cost`.
  std::optional<double> rate_factor, probe_position, probe_cost;
  std::optional<double> planning_cost;  // of what dreams horizons, where any does; within `cost`
  Recovery recovery = Recovery::kContinue;  // the gravest that the step took
  std::int64_t updates = 0;  // optimizer steps: one outside Predict, more after a revert
  double cost = 0;           // charged, in Full steps
  double seconds = 0;        // wall-clock; decides nothing
  std::int64_t tokens = 0;
  std::string event;   // "" or what was decided and why
  bool warns = false;  // the event tells of something that went wrong
};

struct PhaseTotals {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  double cost = 0;  // in Full steps
};

/// Sums over the run.
struct PhaseStatistics {
  std::array<PhaseTotals, kPhases> phases{};
  PredictionCounts predictions;
  std::int64_t trials = 0;  // predictions made while Predict was not ahead of Full
  std::int64_t micro_corrections = 0;
  std::int64_t skipped_updates = 0;
  double predicted_gain = 0;  // loss drops of kept jumps on their probes, summed
  double planning_cost = 0;   // of what dreams horizons, in Full steps, within the phases' costs

  const PhaseTotals& of(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  PhaseTotals& of(Phase phase) { return phases[static_cast<std::size_t>(phase)]; }
  std::int64_t steps() const;
  double cost() const;  // in Full steps
  void save(State& state) const;
  void load(const State& state);
};

}  // namespace hybrid_trainer
