#pragma once

#include <functional>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/divergence_config.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/predictor.h"
#include "hybrid_trainer/phases/trainable.h"

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

struct PhaseParts;
struct MethodRow;

/// Trains a model in phases, one batch per step. All decisions are functions of the losses, the
/// gradients and the config, never of the clock: the same seed gives bit-identical runs.
///
/// With max_predict_steps 0, a step is only measurement and update.
class PhaseMachine {
 public:
  struct Setup {
    PhaseConfig phases;
    DivergenceConfig divergence;
    std::int64_t restore_lookahead = 0;  // Predict steps before Correct to begin_restore; 0: never
    std::int64_t steps = 0;  // of the whole run, whose last step decides at the latest; 0: no end
    LearningRateFinderConfig learning_rate_finder{};
    std::int64_t ramp_steps = 0;  // first steps of the run, in which the schedule's rate rises
    /// Where predictors come from, each time one begins anew; by default phases.skip_backward.predictor names it.
    std::function<std::unique_ptr<Predictor>(const SkipBackwardConfig&)> make_predictor =
        hybrid_trainer::make_predictor;
    /// Where phases.method is looked up; by default in the table of all methods.
    const std::vector<MethodRow>* methods = nullptr;
  };

  /// `model` must outlive the machine. Throws ConfigError for an unknown predictor.
  PhaseMachine(Trainable& model, const Setup& setup);
  ~PhaseMachine();
  PhaseMachine(PhaseMachine&&) noexcept;
  PhaseMachine& operator=(PhaseMachine&&) noexcept;

  /// One step. Throws Diverged where more than max_skipped_updates updates in a row were skipped, or
  /// the config wants the run to end; the weights are then those of the last good update.
  PhaseOutcome step(const Batch& batch);
  /// The same; where it throws, `outcome` holds what the step came to until then. Where
  /// outcome.recovery is kRollBack, no update was made, and going back is the caller's.
  void step(const Batch& batch, PhaseOutcome& outcome);
  /// The phase of the next step.
  Phase phase() const;
  /// Steps since the weights were last decided on: 0 except in Predict, where the model's snapshot
  /// holds the previous weights.
  std::int64_t undecided_steps() const;
  const PhaseStatistics& statistics() const;
  /// Whether the last update had no warning, or none was made yet.
  bool is_healthy() const;
  /// No prediction begins from now on; one that is in progress is decided on. Saved with the rest.
  void give_up_predicting();

  /// Gradients of other ranks that are under way arrive, and the weights are the exact ones; from
  /// there Predict goes on. `outcome` gets what came of it. Throws Diverged, as step does. To be
  /// called before save, at the same steps by all ranks.
  void drain(PhaseOutcome& outcome);

  /// Writes "phases.…". Tensors are views that stay valid until the next step: in Predict the
  /// directions and the probe batches, and the linear predictor's history. Weights, snapshot,
  /// moments and counters of the model are the caller's to save.
  void save(State& state) const;
  /// Continues where save stopped. The model's weights, snapshot, moments and counters must have
  /// been loaded before; enters the saved phase. Throws DataError if something is missing.
  void load(const State& state);

 private:
  void end_predicting_in_time();
  void enter(Phase phase, PhaseOutcome& outcome);
  void finish_step(PhaseOutcome& outcome, double seconds);
  void enter_due_phase(PhaseOutcome& outcome);
  void advance(PhaseOutcome& outcome);
  std::unique_ptr<PhaseParts> parts_;
};

}  // namespace hybrid_trainer
