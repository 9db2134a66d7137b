#pragma once

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/phases/phase_machine.h"
#include "phases/divergence.h"
#include "phases/engine.h"
#include "phases/learning_rate_finder.h"

namespace hybrid_trainer {

class Method;

/// What all phases share, whatever the method.
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

  Phase phase = Phase::kWarmup;        // of the step to come
  Phase entered = Phase::kWarmup;      // that was entered last
  Phase model_phase = Phase::kWarmup;  // that the model is in: Full's in Correct after a revert
  bool has_entered = false;
  std::int64_t steps_in_phase = 0;
  std::int64_t skipped_in_a_row = 0;
  Signal signal = Signal::kNone;       // of the last update
  std::int64_t warnings_in_a_row = 0;  // updates, up to the last, with a warning or worse
  bool lacks_room = false;             // memory does not hold what a prediction needs
  bool stops_predict = false;          // after this step; not saved
  double full_flops = 0;               // of this step, as a Full step; not saved

  const PhaseConfig& config() const { return setup.phases; }
  /// Whether Predict may come.
  bool may_leave_full() const { return config().max_predict_steps > 0 && !lacks_room; }
  /// Remaining steps of the run.
  std::int64_t steps_to_come() const;
  /// Brings the model into a phase.
  void enter_model(Phase wanted);
  /// Whether the last step was one of Predict, so that something may be undecided or late.
  bool is_in_predict() const { return has_entered && entered == Phase::kPredict; }
  /// The next step is the first of this phase.
  void begin(Phase next) {
    phase = next;
    steps_in_phase = 0;
  }
  /// The step turns out to be one of another phase: what it has cost and told so far stays.
  void turn_to(Phase other, PhaseOutcome& outcome);
  void give_up_predicting();
  /// One of several does not go another way alone: this throws then.
  void give_up_predicting(const OutOfMemory& error, PhaseOutcome& outcome);
  /// What is to be done about the verdict on an update or, `in_predict`, on a loss while a prediction
  /// is under way, which Correct decides on whatever it was; done as far as it concerns predictions.
  /// kContinue where there are none to hold back.
  RecoveryAction recover(const Verdict& verdict, bool in_predict);

  void save(State& state) const;
  void load(const State& state);
};

/// The error of one of several (Trainable::is_one_of_several), who ends by it.
OutOfMemory with_way_out(const OutOfMemory& error, const char* way_out);

/// Judges the measurement and applies its gradient, or skips the update where it is not finite or the
/// config wants that, and does what else it wants. Fills loss, norm, updates, recovery and event.
/// Throws Diverged after too many skips in a row, or where the run is to end. `apply`, in place of
/// the model's, is also told of a skipped one.
void update(PhaseParts& parts, const GradientMeasurement& measurement, PhaseOutcome& outcome,
            const std::function<void(bool applies)>& apply = {});

/// Appends to outcome.event.
void tell(PhaseOutcome& outcome, const std::string& text);

/// How far updates may be mispredicted before Predict ends early.
struct PredictionErrorLimit {
  double share = 0;        // of the exact updates' size; 0: never
  bool forecasts = false;  // else a large error means nothing
};

/// Fills in what arrived with an exact update, and ends Predict where it was predicted too badly.
void judge_update(PhaseParts& parts, const ArrivedUpdate& arrived,
                  const PredictionErrorLimit& limit, PhaseOutcome& outcome);

}  // namespace hybrid_trainer
