#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/phases/predictor.h"
#include "phases/phase_parts.h"
#include "phases/skip_backward/direction_trust.h"
#include "phases/skip_backward/jump.h"
#include "phases/skip_backward/jump_advisor.h"
#include "phases/skip_backward/predict_gate.h"
#include "phases/skip_backward/prediction_line.h"

namespace hybrid_trainer {

using MakePredictor = std::function<std::unique_ptr<Predictor>(const SkipBackwardConfig&)>;

/// The predictors that a config names, each once: all see every update and every jump, and one
/// gives the directions.
class PredictorSet {
 public:
  /// Those of config.arms, or config.predictor alone. Throws ConfigError for an unknown name.
  PredictorSet(const SkipBackwardConfig& config, const MakePredictor& make);
  void choose(const std::string& name);
  Predictor& chosen() { return *members_[chosen_].predictor; }
  const std::string& name() const { return members_[chosen_].name; }

  void observe(Trainable& model);
  void follow(Trainable& model, const std::vector<Tensor>& directions, double length);
  void save(State& state) const;
  void load(const State& state, Trainable& model);

 private:
  struct Member {
    std::string name;
    std::unique_ptr<Predictor> predictor;
  };
  std::vector<Member> members_;
  std::size_t chosen_ = 0;
};

/// What skip-backward prediction holds from step to step: where predictions come from, what speaks
/// for them, and the one under way.
struct Prediction {
  explicit Prediction(PhaseParts& shared);

  PhaseParts& parts;
  PredictorSet predictors;
  std::vector<std::unique_ptr<JumpAdvisor>> advisors;
  DirectionTrust trust;
  PredictGate gate;
  PredictionLine line;
  Jump jump;
  bool told_no_direction = false;  // that a predictor's direction was zero or not finite
  bool has_held_snapshot = false;  // memory has held one; not saved
  double aim_cost = 0;  // of directions and of what chooses lengths, since the last prediction
  PredictGate::Verdict verdict = PredictGate::Verdict::kUntried;  // last reported

  const SkipBackwardConfig& config() const { return parts.config().skip_backward; }
  /// Whether Predict may come.
  bool predicts() const { return parts.may_leave_full(); }
  /// Points the line along the predictor's direction, at its cost; false where it has none yet, or
  /// memory does not hold it, or a snapshot besides, which ends all predicting.
  bool aim(PhaseOutcome& outcome);
  /// Lets the advisors see an update, at their cost, and the predictor. Where memory does not hold
  /// what that keeps, all predicting ends.
  void see_update(const GradientMeasurement& measurement, PhaseOutcome& outcome);
  /// Charges what an advisor has computed since the last call.
  void charge(JumpAdvisor& advisor, PhaseOutcome& outcome);
  /// Says once that a direction that is zero or not finite is no prediction, and why that may be.
  void tell_no_direction(PhaseOutcome& outcome);
  /// The gate's, but for trials, whose cost has to stay within twice trial_share: of what all steps
  /// so far were charged beyond a Full step each, and of a trial's most. The first one is weighed
  /// against all steps of the run.
  PredictGate::Grant grant() const;
  /// The most that a trial is charged beyond Full's steps, without slopes that were measured already.
  double price_of(const PredictGate::Grant& grant) const;
  /// Slopes that the confidence needs; not more than a Full phase can give.
  std::int64_t slopes_needed() const;
  /// No direction: what was measured along the last one means nothing.
  void forget_direction();
  /// Directions that are not decided on stay until they are.
  void begin_predictors_anew();
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

}  // namespace hybrid_trainer
