#pragma once

#include <algorithm>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/predictor.h"
#include "hybrid_trainer/phases/trainable.h"
#include "phases/phase_parts.h"
#include "phases/skip_backward/jump_advisor.h"

namespace hybrid_trainer {

/// How far the predicted direction d can be trusted: from the slopes <g_t, d_t> of the last Full
/// gradients, where d_t was fixed before g_t was measured, so that no slope is fitted to the noise
/// it is judged by.
///
/// The slopes are samples of the loss change per predicted step. Their mean over its standard error
/// is a t-statistic; confidence is the normal probability that the true mean is not above zero,
/// Φ(−mean/error). It needs one dot product per weight and step, and no pass over data.
class DirectionTrust {
 public:
  explicit DirectionTrust(std::int64_t window) : window_(window) {}
  void add(double slope);
  void clear() { slopes_.clear(); }
  std::int64_t count() const { return static_cast<std::int64_t>(slopes_.size()); }
  /// Expected loss change of one predicted step; 0 before the first slope.
  double mean_slope() const;
  /// In [0, 1]; 1 for a direction that changes nothing, 0 before the second slope.
  double confidence() const;

  void save(State& state) const { state.series["phases.trust.slopes"] = slopes_; }
  void load(const State& state) { slopes_ = state.reals_of("phases.trust.slopes"); }

 private:
  std::int64_t window_;
  std::vector<double> slopes_;  // the last `window`, oldest first
};

/// Decides whether Predict may begin and for how long: only while its measured progress for its
/// cost is not behind Full's, plus a share of trials.
///
/// A loss that is lower right after a jump mostly comes from less noise in the weights, and does
/// not last. So the gain of a jump is read from the losses of the Full steps around it, each on a
/// fresh batch before its update: loss = a + b·t + c·[after the jump], t in updates, fitted over
/// windows of equal length on both sides (so that a curved trend cancels) without the quarter next
/// to the jump. −c is what remains of the jump's gain, its standard error comes with the fit, −b is
/// the progress of one Full step. Over all jumps, older ones discounted by 0.9 each:
///   advantage = min(Σgain − sigmas·error, Σpaired drop) − Σcost·(progress of a Full step)
/// Costs are counted in Full steps, not seconds, so that equal runs decide equally.
///
/// Lengths begin at trial_steps, double with each accepted jump and halve with each reverted one;
/// trials wait until their share has room for the length: for the same number of predicted steps, a
/// few long jumps stand out from the noise better than many short ones. The first trial, and trials
/// within half of the share, are made whatever the confidence; the others wait for it.
///
/// No Predict begins before four Full losses since the one before: with fewer the jump between
/// could not be judged, and would never be charged.
///
/// Step lengths learn from Correct: the next jump aims where the last one was shrunk to, a reverted
/// jump halves them, an accepted one doubles them up to one predicted step. A jump that never moved
/// changes no length.
class PredictGate {
 public:
  struct Grant {
    bool open = false;
    bool trial = false;
    bool overdue = false;  // a trial that does not wait for confidence
    std::int64_t steps = 0;
    double step_length = 1;  // of the first step, in predicted steps
  };
  /// What the measured progress says about prediction.
  enum class Verdict { kUntried, kBehind, kAhead };

  explicit PredictGate(const PhaseConfig& config);
  /// What a Predict that begins now would be granted.
  Grant grant() const;
  /// Loss saved by the jumps so far minus what Full would have saved at their cost; 0 if unknown. Decides
  /// which is better; it is no estimate of the run's last loss, whose later steps and decay make up for most
  /// of it.
  double advantage() const;
  /// Whether there are enough losses since the last jump to judge it by.
  bool ready() const;
  Verdict verdict() const;
  /// The verdict in words: "predictions are behind Full by …".
  std::string explanation() const;

  void add_step() { ++steps_; }
  void add_full_loss(double loss);
  /// The length of the next Predict and of its first step, where they are chosen elsewhere.
  void plan(std::int64_t steps, double step_length) {
    length_ = std::min(steps, config_.max_predict_steps);
    step_length_ = step_length;
  }
  double step_length() const { return step_length_; }
  void begin_jump(const Grant& grant);
  void finish_jump(const Jump& jump);

  void save(State& state) const;
  void load(const State& state);

 private:
  struct Evidence {
    double gain = 0, variance = 0, drop = 0, price = 0;
  };
  Evidence evidence_of_last_jump() const;
  Evidence total() const;

  template <class Self, class Visit>
  static void visit_state(Self& self, const Visit& visit) {
    visit("phases.gate.steps", self.steps_);
    visit("phases.gate.trial_steps", self.trial_steps_);
    visit("phases.gate.jumps", self.jumps_);
    visit("phases.gate.length", self.length_);
    visit("phases.gate.step_length", self.step_length_);
    visit("phases.gate.past.gain", self.past_.gain);
    visit("phases.gate.past.variance", self.past_.variance);
    visit("phases.gate.past.drop", self.past_.drop);
    visit("phases.gate.past.price", self.past_.price);
    visit("phases.gate.last.cost", self.last_.cost);
    visit("phases.gate.last.paired_drop", self.last_.paired_drop);
    visit("phases.gate.last.updates", self.last_.updates);
    visit("phases.gate.last.decision", self.last_.decision);
    visit("phases.gate.last.kept_fraction", self.last_.kept_fraction);
    visit("phases.gate.before", self.before_);
    visit("phases.gate.after", self.after_);
    visit("phases.gate.recent", self.recent_);
  }

  PhaseConfig config_;
  std::size_t window_;            // most losses on one side of a jump
  std::int64_t steps_ = 0;        // of all phases
  std::int64_t trial_steps_ = 0;  // granted to trials
  std::int64_t jumps_ = 0;
  std::int64_t length_;  // of the next Predict where it pays
  double step_length_ = 1;
  Evidence past_;  // all jumps but the last
  Jump last_;
  std::vector<double> before_;  // Full losses before the last jump
  std::vector<double> after_;   // first `window_` since
  std::vector<double> recent_;  // last `window_` since
};

/// The straight line w(x) = snapshot + x·direction that a prediction moves on. Position is in units
/// of the first predicted step; at 0 the weights are the snapshot bit for bit.
class PredictionLine {
 public:
  /// Points the line along the predictor's current direction. False if it has none yet.
  bool aim(Trainable& model, Predictor& predictor);
  /// Whether the direction is finite and, but for the control's, not zero. Blocks.
  bool wait_for_sound_direction(Trainable& model) const;
  /// Fixes the snapshot at the current weights, position 0. Needs a successful aim.
  void start(Trainable& model);
  /// False for the control, whose direction changes nothing.
  bool moves() const { return !directions_.empty(); }

  /// Moves the weights forward by a length.
  void advance(Trainable& model, double length);
  /// Moves the weights to a position, starting from the snapshot.
  void return_to(Trainable& model, double position);
  double position() const { return position_; }
  /// Empty for the control.
  const std::vector<Tensor>& directions() const { return directions_; }
  /// Slope of the loss per unit of position: <gradient, direction> of the last measurement.
  double wait_for_slope(Trainable& model) const;
  /// Frees directions and snapshot; the weights stay where they are.
  void release(Trainable& model);

  void save(State& state) const;
  void load(const State& state, Trainable& model);

 private:
  std::vector<Tensor> directions_;  // empty where the direction changes nothing
  double position_ = 0;
  bool started_ = false;
};

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
