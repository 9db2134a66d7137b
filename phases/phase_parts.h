#pragma once

#include "phases/divergence.h"
#include "phases/engine.h"
#include "phases/learning_rate_finder.h"

namespace hybrid_trainer {

class Method;

struct PhaseParts {
  PhaseParts(Trainable& trained, const PhaseMachine::Setup& given);
  ~PhaseParts();

  Trainable& model;
  const PhaseMachine::Setup setup;
  DivergenceMonitor monitor;
  LearningRateFinder finder;
  RecoveryEffects recovery;
  PhaseStatistics statistics;
  std::unique_ptr<Method> method;

  Phase phase = Phase::kWarmup;        // phase of the next step
  Phase entered = Phase::kWarmup;      // phase that was entered last
  Phase model_phase = Phase::kWarmup;  // phase of the model: Full in Correct after a revert
  bool has_entered = false;
  std::int64_t steps_in_phase = 0;
  std::int64_t skipped_in_a_row = 0;
  Signal signal = Signal::kNone;  // signal of the last update
  std::int64_t warnings_in_a_row = 0;
  bool is_out_of_memory = false;  // whether memory was too short for predictions
  bool stops_predict = false;     // whether Predict ends after this step; not saved
  double full_flops = 0;          // FLOPs of this step as a Full step; not saved

  const PhaseConfig& config() const { return setup.phases; }
  bool may_leave_full() const { return config().max_predict_steps > 0 && !is_out_of_memory; }
  std::int64_t remaining_steps() const;
  void enter_model(Phase wanted);
  /// Returns whether weights may be undecided or updates pending.
  bool is_in_predict() const { return has_entered && entered == Phase::kPredict; }
  void begin(Phase next) {
    phase = next;
    steps_in_phase = 0;
  }
  /// Continues the step in another phase. Keeps the cost and events of the step so far.
  void switch_to(Phase other, PhaseOutcome& outcome);
  void disable_prediction();
  /// Disables predictions because of `error`. With several ranks, throws `error` instead.
  void disable_prediction(const OutOfMemory& error, PhaseOutcome& outcome);
  /// Returns the configured action for a verdict on an update or, if `in_predict` is set, on a loss
  /// during a prediction. Actions that restrict predictions take effect here; they become kContinue
  /// if predictions are already disabled. If `in_predict` is set, all other actions become
  /// kContinue, because Correct decides on the prediction.
  RecoveryAction recover(const Verdict& verdict, bool in_predict);

  void save(State& state) const;
  void load(const State& state);
};

OutOfMemory with_hint(const OutOfMemory& error, const char* hint);

/// Assesses the measurement and applies the gradient or skips the update. Sets loss, norm, updates,
/// recovery and event of `outcome`. `apply` replaces apply_gradient, also for skipped updates.
/// Throws Diverged after too many skipped updates in a row, or if the action ends the run.
void update(PhaseParts& parts, const GradientMeasurement& measurement, PhaseOutcome& outcome,
            const std::function<void(bool applies)>& apply = {});

void add_event(PhaseOutcome& outcome, const std::string& text);

struct PredictionErrorLimit {
  double share = 0;        // largest error relative to the exact updates; 0: no limit
  bool forecasts = false;  // whether updates are predicted; if not, there is no limit
};

/// Records an arrived exact update. Ends Predict if its prediction error is too large.
void judge_update(PhaseParts& parts, const ArrivedUpdate& arrived,
                  const PredictionErrorLimit& limit, PhaseOutcome& outcome);

}  // namespace hybrid_trainer
