#pragma once

#include <functional>

#include "hybrid_trainer/phases/divergence_config.h"
#include "hybrid_trainer/phases/predictor.h"

namespace hybrid_trainer {

/// Result of one step.
struct PhaseOutcome : StepOutcome {
  double kept_fraction = 0;        // 1 accepted, 0 reverted, else shrunk
  std::int64_t planned_steps = 0;  // length of the predictor's prediction
  std::int64_t lag = 0;            // updates that were pending while the step was computed
  std::int64_t updates = 0;        // optimizer steps: 1 outside Predict, more after a revert
  double seconds = 0;              // wall-clock time; affects no decision
  std::int64_t tokens = 0;
};

struct PhaseTotals {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  double cost = 0;  // in Full steps
};

/// Totals over the run.
struct PhaseStatistics {
  std::array<PhaseTotals, kPhases> phases{};
  PredictionCounts predictions;
  std::int64_t trials = 0;  // probes: predictions made while the gate disables Predict
  std::int64_t micro_corrections = 0;
  std::int64_t skipped_updates = 0;
  double predicted_gain = 0;  // decrease of the loss on probe batches
  double planning_cost = 0;   // cost of model-based horizons, in Full steps

  const PhaseTotals& of(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  PhaseTotals& of(Phase phase) { return phases[static_cast<std::size_t>(phase)]; }
  std::int64_t steps() const;
  double cost() const;
  void save(State& state) const;
  void load(const State& state);
};

struct PhaseParts;
struct MethodRow;

/// Trains a model in phases, one batch per step. Decisions depend only on losses, gradients and the
/// config, not on a clock. If max_predict_steps is 0, each step only makes an update.
class PhaseMachine {
 public:
  struct Setup {
    PhaseConfig phases;
    DivergenceConfig divergence;
    // Number of Predict steps before Correct at which begin_restore is called; 0 means never.
    std::int64_t restore_lookahead = 0;
    std::int64_t steps = 0;  // length of the run; 0: unlimited
    LearningRateFinderConfig learning_rate_finder{};
    std::int64_t ramp_steps = 0;  // number of steps in which the schedule's rate rises
    /// Makes a predictor, by default the configured one, at the start and after each reset.
    std::function<std::unique_ptr<Predictor>(const SkipBackwardConfig&)> make_predictor =
        hybrid_trainer::make_predictor;
    /// Table of the methods that phases.method may name; null means all methods.
    const std::vector<MethodRow>* methods = nullptr;
  };

  /// `model` must outlive this object. Throws ConfigError for an unknown predictor.
  PhaseMachine(Trainable& model, const Setup& setup);
  ~PhaseMachine();
  PhaseMachine(PhaseMachine&&) noexcept;
  PhaseMachine& operator=(PhaseMachine&&) noexcept;

  /// Runs one step. Throws Diverged after more than max_skipped_updates skipped updates in a row,
  /// or if an action ends the run, with the weights of the last good update.
  PhaseOutcome step(const Batch& batch);
  /// Runs one step and fills `outcome` even if the step throws. If outcome.recovery is kRollBack,
  /// the step made no update, and the caller must roll back.
  void step(const Batch& batch, PhaseOutcome& outcome);
  /// Returns the phase of the next step.
  Phase phase() const;
  /// Returns the number of undecided predicted steps; nonzero only in Predict, with a snapshot.
  std::int64_t undecided_steps() const;
  const PhaseStatistics& statistics() const;
  /// Returns whether the last update had no warning; true before the first update.
  bool is_healthy() const;
  /// Disables predictions from now on, after the one in progress is decided.
  void disable_prediction();

  /// Waits for pending gradients of other ranks, makes the weights exact and adds the results to
  /// `outcome`. Throws Diverged like `step`. Call it before `save`, at the same steps on all ranks.
  void drain(PhaseOutcome& outcome);

  /// Saves the state as "phases.…". Tensors are views that stay valid until the next step. The
  /// caller saves the model's weights, snapshot, moments and counters.
  void save(State& state) const;
  /// Loads a saved state and enters its phase. Load the model's state first. Throws DataError.
  void load(const State& state);

 private:
  void finish_last_prediction();
  void enter(Phase phase, PhaseOutcome& outcome);
  void finish_step(PhaseOutcome& outcome, double seconds);
  void enter_due_phase(PhaseOutcome& outcome);
  void advance(PhaseOutcome& outcome);
  std::unique_ptr<PhaseParts> parts_;
};

}  // namespace hybrid_trainer
