#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/divergence_config.h"
#include "hybrid_trainer/phases/learning_rate_finder_config.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/phase_outcome.h"
#include "hybrid_trainer/phases/predictor.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

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
