#pragma once

#include <memory>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/phases/divergence_monitor.h"
#include "hybrid_trainer/phases/phase_machine.h"
#include "hybrid_trainer/phases/predictor.h"
#include "phases/direction_trust.h"
#include "phases/jump.h"
#include "phases/jump_advisor.h"
#include "phases/learning_rate_finder.h"
#include "phases/predict_gate.h"
#include "phases/prediction_line.h"
#include "phases/predictor_set.h"
#include "phases/recovery_effects.h"

namespace hybrid_trainer {

/// What the executors of the phases work on.
struct PhaseParts {
  PhaseParts(Trainable& trained, const PhaseMachine::Setup& given);

  Trainable& model;
  const PhaseMachine::Setup setup;
  DivergenceMonitor monitor;
  PredictorSet predictors;
  std::vector<std::unique_ptr<JumpAdvisor>> advisors;
  DirectionTrust trust;
  PredictGate gate;
  PredictionLine line;
  LearningRateFinder finder;
  Jump jump;
  RecoveryEffects recovery;
  PhaseStatistics statistics;

  Phase phase = Phase::kWarmup;        // of the step to come
  Phase entered = Phase::kWarmup;      // whose executor was entered last
  Phase model_phase = Phase::kWarmup;  // that the model is in: Full's in Correct after a revert
  bool has_entered = false;
  std::int64_t steps_in_phase = 0;
  std::int64_t skipped_in_a_row = 0;
  Signal signal = Signal::kNone;       // of the last update
  std::int64_t warnings_in_a_row = 0;  // updates, up to the last, with a warning or worse
  bool lacks_room = false;             // memory does not hold what a prediction needs
  bool told_no_direction = false;      // that a predictor's direction was zero or not finite
  bool stops_speculating = false;      // in this step; not saved
  bool has_held_snapshot = false;      // memory has held one; not saved
  double full_flops = 0;               // of the step under way, as a Full step; not saved
  double aim_cost = 0;  // of directions and of what chooses lengths, since the last prediction
  PredictGate::Verdict verdict = PredictGate::Verdict::kUntried;  // last reported

  const PhaseConfig& config() const { return setup.phases; }
  /// Whether Predict may come, with forward passes alone or with late updates.
  bool predicts() const { return config().skips_backward() && may_leave_full(); }
  bool speculates() const { return !config().skips_backward() && may_leave_full(); }
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
  /// Points the line along the predictor's direction, at its cost; false where it has none yet, or
  /// memory does not hold it, or a snapshot besides, which ends all predicting.
  bool aim(PhaseOutcome& outcome);
  /// Lets the advisors see an update, at their cost.
  void advise_of_update(const GradientMeasurement& measurement, PhaseOutcome& outcome);
  /// Charges what an advisor has computed since the last call.
  void charge(JumpAdvisor& advisor, PhaseOutcome& outcome);
  /// Lets the predictor see an update; where memory does not hold what it keeps, all predicting
  /// ends.
  void observe_update(PhaseOutcome& outcome);
  void give_up_predicting();
  /// Says once that a direction that is zero or not finite is no prediction, and why that may be.
  void tell_no_direction(PhaseOutcome& outcome);
  /// One of several does not go another way alone: this throws then.
  void give_up_predicting(const OutOfMemory& error, PhaseOutcome& outcome);
  /// The gate's, but for trials, whose cost has to stay within twice trial_share: of what all steps
  /// so far were charged beyond a Full step each, and of a trial's most. The first one is weighed
  /// against all steps of the run.
  PredictGate::Grant grant() const;
  /// The most that a trial is charged beyond Full's steps, without slopes that were measured already.
  double price_of(const PredictGate::Grant& grant) const;
  /// What is to be done about the verdict on an update or, `in_predict`, on a loss while a prediction
  /// is under way, which Correct decides on whatever it was; done as far as it concerns predictions.
  /// kContinue where there are none to hold back.
  RecoveryAction recover(const Verdict& verdict, bool in_predict);
  /// Slopes that the confidence needs; not more than a Full phase can give.
  std::int64_t slopes_needed() const;
  /// What is held of earlier weights moves along with a jump.
  void follow_jump();
  /// Ends the prediction that was decided on: informs gate, advisors and predictors, frees the
  /// line.
  void close_jump();
  /// Predictor and lengths of the next prediction are an advisor's, where one chooses them.
  void take_choice();
  PredictorSet new_predictors() const;

  void save(State& state) const;
  void load(const State& state);
};

/// The error of one of several (Trainable::is_one_of_several), who ends by it.
OutOfMemory with_way_out(const OutOfMemory& error, const char* way_out);

}  // namespace hybrid_trainer
