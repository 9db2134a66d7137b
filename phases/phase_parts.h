#pragma once

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/phases/phase_machine.h"
#include "phases/divergence.h"
#include "phases/engine.h"
#include "phases/learning_rate_finder.h"

namespace hybrid_trainer {

class Method;

/// State shared by all phases and methods.
struct PhaseParts {
  /// Makes the method that the config names.
  PhaseParts(Trainable& trained, const PhaseMachine::Setup& given);
  ~PhaseParts();

  Trainable& model;
  const PhaseMachine::Setup setup;
  DivergenceMonitor monitor;
  LearningRateFinder finder;
  RecoveryEffects recovery;
  PhaseStatistics statistics;
  std::unique_ptr<Method> method;

  Phase phase = Phase::kWarmup;        // of the next step
  Phase entered = Phase::kWarmup;      // entered last
  Phase model_phase = Phase::kWarmup;  // of the model: Full in Correct after a revert
  bool has_entered = false;
  std::int64_t steps_in_phase = 0;
  std::int64_t skipped_in_a_row = 0;
  Signal signal = Signal::kNone;  // of the last update
  // Consecutive updates with a warning or worse, up to the last.
  std::int64_t warnings_in_a_row = 0;
  bool is_out_of_memory = false;  // memory is too short for predictions
  bool stops_predict = false;     // after this step; not saved
  double full_flops = 0;          // of this step as a Full step; not saved

  const PhaseConfig& config() const { return setup.phases; }
  /// Returns whether Predict may begin.
  bool may_leave_full() const { return config().max_predict_steps > 0 && !is_out_of_memory; }
  std::int64_t remaining_steps() const;
  void enter_model(Phase wanted);
  /// Returns whether the last step was in Predict: weights may be undecided or updates pending.
  bool is_in_predict() const { return has_entered && entered == Phase::kPredict; }
  void begin(Phase next) {
    phase = next;
    steps_in_phase = 0;
  }
  /// Continues the step in another phase, and keeps its cost and events so far.
  void switch_to(Phase other, PhaseOutcome& outcome);
  void disable_prediction();
  /// Stops predicting because of `error`, or throws it with several ranks, which must not deviate.
  void disable_prediction(const OutOfMemory& error, PhaseOutcome& outcome);
  /// Returns the configured action for a verdict on an update or, with `in_predict`, on a loss
  /// during a prediction. An action that restricts predictions takes effect here; if predictions
  /// are disabled already, returns kContinue instead. With `in_predict`, returns kContinue for all
  /// other actions, because Correct decides in any case.
  RecoveryAction recover(const Verdict& verdict, bool in_predict);

  void save(State& state) const;
  void load(const State& state);
};

/// Returns the error of one rank that ends the run (is_distributed), with a hint in its message.
OutOfMemory with_hint(const OutOfMemory& error, const char* hint);

/// Assesses the measurement, then applies its gradient, or skips the update if it is not finite or
/// the config requires it. Takes the config's other actions. Sets loss, norm, updates, recovery and
/// event of `outcome`. Throws Diverged after too many skips in a row, or if the action ends the
/// run. `apply` replaces the model's apply_gradient and is also called for skipped updates.
void update(PhaseParts& parts, const GradientMeasurement& measurement, PhaseOutcome& outcome,
            const std::function<void(bool applies)>& apply = {});

void add_event(PhaseOutcome& outcome, const std::string& text);

/// Largest prediction error of updates; Predict ends early above it.
struct PredictionErrorLimit {
  double share = 0;        // relative to the exact updates; 0: never
  bool forecasts = false;  // false: updates are not predicted, so there is no limit
};

/// Records an exact update that arrived, and ends Predict if its prediction error is too large.
void judge_update(PhaseParts& parts, const ArrivedUpdate& arrived,
                  const PredictionErrorLimit& limit, PhaseOutcome& outcome);

}  // namespace hybrid_trainer
