#pragma once

#include <algorithm>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/predictor.h"
#include "hybrid_trainer/phases/trainable.h"
#include "phases/phase_parts.h"
#include "phases/skip_backward/extrapolation_advisor.h"

namespace hybrid_trainer {

/// Confidence in the predicted direction d, from the slopes <g_t, d_t> of the last Full gradients.
/// d_t is fixed before g_t is measured, so the noise of g_t cannot influence it.
///
/// The slopes are samples of the loss change per predicted step. Mean over standard error is a
/// t-statistic; the confidence is the normal probability Φ(−mean/error) that the true mean is not
/// positive. It needs one dot product per weight and step, and no pass over data.
class DirectionTrust {
 public:
  explicit DirectionTrust(std::int64_t window) : window_(window) {}
  void add(double slope);
  void clear() { slopes_.clear(); }
  std::int64_t count() const { return static_cast<std::int64_t>(slopes_.size()); }
  /// Returns the expected loss change of one predicted step; 0 before the first slope.
  double mean_slope() const;
  /// Returns the confidence in [0, 1]: 1 for a zero direction, 0 before the second slope.
  double confidence() const;

  void save(State& state) const { state.series["phases.trust.slopes"] = slopes_; }
  void load(const State& state) { slopes_ = state.reals_of("phases.trust.slopes"); }

 private:
  std::int64_t window_;
  std::vector<double> slopes_;  // the last `window`, oldest first
};

/// Decides whether Predict may begin, and its length. Predict is allowed while its measured
/// progress per cost is at least Full's. Otherwise only probes are, a small share of steps.
///
/// The loss drop right after a prediction mostly comes from less noise in the weights, and does not
/// last. So the gain is fitted from the losses of the Full steps around it, each on a new batch
/// before its update: loss = a + b·t + c·[after the prediction], t in updates. The fit uses windows
/// of equal length on both sides, so that a curved trend cancels. It omits the quarter of each
/// window next to the prediction. −c is the lasting gain, with its standard error from the fit; −b
/// is the progress of one Full step. Over all predictions, discounted by 0.9 each:
///   advantage = min(Σgain − sigmas·error, Σpaired drop) − Σcost·(progress of a Full step)
/// Costs are in Full steps, not seconds, so identical runs make identical decisions.
///
/// The length starts at trial_steps, doubles with each accepted prediction and halves with each
/// reverted one. A probe waits until trial_share allows its length, because a few long predictions
/// stand out from the noise better than many short ones. The first probe, and probes within half of
/// the share, ignore the confidence. Predict begins only after four Full losses since the previous
/// one. With fewer, the previous prediction could not be judged and would never count as cost.
///
/// Step lengths follow Correct's decisions: a shrunk prediction sets the next step length, a
/// reverted one halves it, and an accepted one doubles it, up to one predicted step. A prediction
/// that did not move changes no length.
class PredictGate {
 public:
  struct Allowance {
    bool open = false;
    bool trial = false;
    bool overdue = false;  // a probe that ignores the confidence
    std::int64_t steps = 0;
    double step_length = 1;  // of the first step, in predicted steps
  };
  /// Result of comparing predictions with Full.
  enum class Verdict { kUntried, kBehind, kAhead };

  explicit PredictGate(const PhaseConfig& config);
  /// Returns the allowed length of a Predict that begins now.
  Allowance allowance() const;
  /// Returns the loss saved by predictions so far minus the loss that Full would have saved at
  /// their cost; 0 if unknown. It only ranks the two and does not estimate the run's final loss,
  /// because later steps and the decay compensate for most of it.
  double advantage() const;
  /// Returns whether enough losses are known to judge the last prediction.
  bool ready() const;
  Verdict verdict() const;
  /// Describes the verdict: "predictions are behind Full by …".
  std::string explanation() const;

  void add_step() { ++steps_; }
  void add_full_loss(double loss);
  /// Sets the length of the next Predict and of its first step, if an advisor chooses them.
  void plan(std::int64_t steps, double step_length) {
    length_ = std::min(steps, config_.max_predict_steps);
    step_length_ = step_length;
  }
  double step_length() const { return step_length_; }
  void begin_extrapolation(const Allowance& allowance);
  void finish_extrapolation(const Extrapolation& extrapolation);

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
    visit("phases.gate.jumps", self.extrapolations_);
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
  std::size_t window_;            // most losses on one side of a prediction
  std::int64_t steps_ = 0;        // of all phases
  std::int64_t trial_steps_ = 0;  // used by probes
  std::int64_t extrapolations_ = 0;
  std::int64_t length_;  // of the next Predict while predictions are ahead
  double step_length_ = 1;
  Evidence past_;  // all predictions except the last
  Extrapolation last_;
  std::vector<double> before_;  // Full losses before the last prediction
  std::vector<double> after_;   // first `window_` since
  std::vector<double> recent_;  // last `window_` since
};

/// The line w(x) = snapshot + x·direction of a prediction. The unit of position is the first
/// predicted step; at 0 the weights are the snapshot bit for bit.
class PredictionLine {
 public:
  /// Sets the line to the predictor's current direction. Returns false if it has none yet.
  bool compute_direction(Trainable& model, Predictor& predictor);
  /// Returns whether the direction is finite and nonzero; always for the zero predictor. Blocks.
  bool wait_for_valid_direction(Trainable& model) const;
  /// Takes the snapshot at the current weights, position 0. Requires a computed direction.
  void start(Trainable& model);
  /// Returns false for the zero predictor, which moves nothing.
  bool moves() const { return !directions_.empty(); }

  void advance(Trainable& model, double length);
  /// Moves the weights to `position`, starting from the snapshot.
  void return_to(Trainable& model, double position);
  double position() const { return position_; }
  /// Returns the directions; empty for the zero predictor.
  const std::vector<Tensor>& directions() const { return directions_; }
  /// Returns the slope of the loss per unit of position, from the last measured gradient.
  double wait_for_slope(Trainable& model) const;
  /// Frees directions and snapshot without moving the weights.
  void release(Trainable& model);

  void save(State& state) const;
  void load(const State& state, Trainable& model);

 private:
  std::vector<Tensor> directions_;  // empty if the direction changes nothing
  double position_ = 0;
  bool started_ = false;
};

using MakePredictor = std::function<std::unique_ptr<Predictor>(const SkipBackwardConfig&)>;

/// The distinct predictors of a config. All observe every update and every prediction.
class PredictorSet {
 public:
  /// Makes config.variants' predictors, or config.predictor. Throws ConfigError for unknown names.
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

/// State of skip-backward prediction: predictors, evidence about them, and the current prediction.
struct Prediction {
  explicit Prediction(PhaseParts& shared);

  PhaseParts& parts;
  PredictorSet predictors;
  std::vector<std::unique_ptr<ExtrapolationAdvisor>> advisors;
  DirectionTrust trust;
  PredictGate gate;
  PredictionLine line;
  Extrapolation extrapolation;
  bool has_reported_no_direction = false;  // warned of a zero or non-finite direction
  bool has_held_snapshot = false;          // a snapshot has fit into memory; not saved
  double direction_cost = 0;               // of directions and advisors since the last prediction
  PredictGate::Verdict verdict = PredictGate::Verdict::kUntried;  // last reported

  const SkipBackwardConfig& config() const { return parts.config().skip_backward; }
  /// Returns whether Predict may begin.
  bool predicts() const { return parts.may_leave_full(); }
  /// Computes the predictor's direction and counts its cost. Returns false if there is none yet.
  /// Also returns false, and ends all predicting, if memory has no room for it and a snapshot.
  bool compute_direction(PhaseOutcome& outcome);
  /// Passes an update to predictors and advisors. Ends all predicting if memory is short.
  void observe_update(const GradientMeasurement& measurement, PhaseOutcome& outcome);
  /// Counts the cost of an advisor's computations since the last call.
  void count_cost(ExtrapolationAdvisor& advisor, PhaseOutcome& outcome);
  /// Warns once that the direction is zero or not finite, with likely reasons.
  void report_no_direction(PhaseOutcome& outcome);
  /// Returns the gate's allowance, but limits the cost of probes to twice trial_share. The extra
  /// cost of the run so far (beyond one Full step per step), plus the maximum cost of the probe,
  /// must fit into this share of the steps so far; for the first probe, of all steps of the run.
  PredictGate::Allowance allowance() const;
  /// Returns the maximum extra cost of a probe (beyond one Full step per step), without the slopes
  /// that are already measured.
  double estimated_cost(const PredictGate::Allowance& allowance) const;
  /// Returns the number of slopes that the confidence needs, at most the slopes of one Full phase.
  std::int64_t slopes_needed() const;
  /// Drops the direction and all measurements along it.
  void forget_direction();
  /// Resets the predictors. Keeps the direction of an undecided prediction until its decision.
  void reset_predictors();
  /// Moves the predictors' records of earlier weights along with the prediction.
  void follow_extrapolation();
  /// Ends the decided prediction: informs gate, advisors and predictors, and frees the line.
  void close_extrapolation();
  /// Applies an advisor's choice of predictor and lengths, if any.
  void apply_choice();
  PredictorSet make_predictors() const;

  void save(State& state) const;
  void load(const State& state);
};

}  // namespace hybrid_trainer
