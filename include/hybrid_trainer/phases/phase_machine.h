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

/// Result of one step.
struct PhaseOutcome {
  Phase phase = Phase::kWarmup;
  double loss = 0;                       // mean over the batch, at the weights before the step
  std::optional<double> gradient_norm;   // if a gradient was computed
  std::optional<double> predicted_loss;  // expected `loss`, in Predict and Correct
  std::optional<double> confidence;      // in [0, 1], if measured
  Decision decision = Decision::kNone;
  double kept_fraction = 0;  // of the predicted change: 1 accepted, in between shrunk, 0 reverted
  std::string predictor;     // set in Predict and in the step of the decision
  std::int64_t planned_steps = 0;          // length of that prediction
  std::optional<double> advantage;         // in Full; see PredictGate
  std::int64_t lag = 0;                    // updates pending while the step was computed
  std::optional<double> prediction_error;  // of the updates that arrived during the step
  /// Factor of a learning-rate finder on the schedule's rate; and, in a step that probed, the
  /// position of the lowest loss in updates, and the cost of the probe, which `cost` includes.
  std::optional<double> rate_factor, probe_position, probe_cost;
  std::optional<double> planning_cost;      // of model-based horizons, if any; part of `cost`
  Recovery recovery = Recovery::kContinue;  // most severe action of the step
  std::int64_t updates = 0;  // optimizer steps: one outside Predict, more after a revert
  double cost = 0;           // in Full steps
  double seconds = 0;        // wall-clock time; affects no decision
  std::int64_t tokens = 0;
  std::string event;   // the decision and its reason, or ""
  bool warns = false;  // whether the event is a warning
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
  std::int64_t trials = 0;  // predictions made while Predict was not ahead of Full
  std::int64_t micro_corrections = 0;
  std::int64_t skipped_updates = 0;
  // Total decrease of the loss by accepted predictions, measured on their probe batches.
  double predicted_gain = 0;
  // Cost of model-based horizons in Full steps, which the phases' costs include.
  double planning_cost = 0;

  const PhaseTotals& of(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  PhaseTotals& of(Phase phase) { return phases[static_cast<std::size_t>(phase)]; }
  std::int64_t steps() const;
  double cost() const;
  void save(State& state) const;
  void load(const State& state);
};

struct PhaseParts;
struct MethodRow;

/// Trains a model in phases, one batch per step. All decisions depend only on losses, gradients and
/// the config, never on a clock: the same seed gives bit-identical runs. With max_predict_steps 0,
/// a step is only a measurement and an update.
class PhaseMachine {
 public:
  struct Setup {
    PhaseConfig phases;
    DivergenceConfig divergence;
    // Number of Predict steps before Correct at which begin_restore is called; 0 means never.
    std::int64_t restore_lookahead = 0;
    std::int64_t steps = 0;  // length of the run; its last step decides on a prediction; 0: no end
    LearningRateFinderConfig learning_rate_finder{};
    std::int64_t ramp_steps = 0;  // first steps of the run, while the schedule's rate rises
    /// Makes a predictor at the start and after each reset; by default the configured one.
    std::function<std::unique_ptr<Predictor>(const SkipBackwardConfig&)> make_predictor =
        hybrid_trainer::make_predictor;
    /// Table in which phases.method is looked up; null means all methods.
    const std::vector<MethodRow>* methods = nullptr;
  };

  /// `model` must outlive this object. Throws ConfigError for an unknown predictor.
  PhaseMachine(Trainable& model, const Setup& setup);
  ~PhaseMachine();
  PhaseMachine(PhaseMachine&&) noexcept;
  PhaseMachine& operator=(PhaseMachine&&) noexcept;

  /// Runs one step. Throws Diverged after more than max_skipped_updates skipped updates in a row,
  /// or if a configured action ends the run. The weights are then as after the last good update.
  PhaseOutcome step(const Batch& batch);
  /// Runs one step and fills `outcome` even if the step throws. If outcome.recovery is kRollBack,
  /// the step made no update, and the caller must roll back.
  void step(const Batch& batch, PhaseOutcome& outcome);
  /// Returns the phase of the next step.
  Phase phase() const;
  /// Returns the steps since the last decision on the weights. Nonzero only in Predict, while the
  /// model's snapshot holds the previous weights.
  std::int64_t undecided_steps() const;
  const PhaseStatistics& statistics() const;
  /// Returns whether the last update, if any, had no warning.
  bool is_healthy() const;
  /// Prevents predictions, also in saved states. A prediction in progress is still decided on.
  void disable_prediction();

  /// Waits for pending gradients of other ranks and makes the weights exact; Predict then
  /// continues. Adds the results to `outcome`. Throws Diverged under the conditions of step. Call
  /// it before save, at the same steps on all ranks.
  void drain(PhaseOutcome& outcome);

  /// Saves the state as "phases.…". Tensors are views that stay valid until the next step:
  /// directions and probe batches in Predict, and the linear predictor's history. The caller saves
  /// the model's weights, snapshot, moments and counters.
  void save(State& state) const;
  /// Resumes from a saved state and enters the saved phase. The model's weights, snapshot, moments
  /// and counters must be loaded before. Throws DataError if something is missing.
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
