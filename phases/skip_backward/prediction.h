#pragma once

#include "phases/phase_parts.h"
#include "phases/skip_backward/extrapolation_advisor.h"

namespace hybrid_trainer {

/// Confidence in the predicted direction d, from the slopes <g_t, d_t> of the last Full gradients
/// g_t. d_t is fixed before g_t is measured, so that g_t's noise does not influence it.
///
/// The slopes are samples of the loss change per predicted step. The confidence is Φ(−mean/error),
/// the normal probability that their true mean is not positive. Computing it costs one dot product
/// per weight and step, and no pass over data.
class DirectionTrust {
 public:
  explicit DirectionTrust(std::int64_t window) : window_(window) {}
  void add(double slope);
  void clear() { slopes_.clear(); }
  std::int64_t count() const { return static_cast<std::int64_t>(slopes_.size()); }
  /// Returns the expected loss change of one predicted step, or 0 before the first slope.
  double mean_slope() const;
  /// Returns the confidence in [0, 1]: 1 for a zero direction, 0 before the second slope.
  double confidence() const;

  void save(State& state) const { state.series["phases.trust.slopes"] = slopes_; }
  void load(const State& state) { slopes_ = state.reals_of("phases.trust.slopes"); }

 private:
  std::int64_t window_;
  std::vector<double> slopes_;  // the last `window`, oldest first
};

/// Decides whether Predict may begin, and sets its length. Allows Predict while its measured
/// progress per cost is at least as high as in Full. Otherwise, allows only probes.
///
/// Right after a prediction, most of the loss drop is due to less noise in the weights and does not
/// last. The gate therefore fits the gain from the losses of the Full steps before and after it:
/// loss = a + b·t + c·[after the prediction], with t in updates. The windows on both sides are
/// equally long, so that a curved trend cancels, and omit the quarter next to the prediction. −c is
/// the lasting gain, with its standard error from the fit; −b is the progress of one Full step.
/// Sums over all predictions are discounted by 0.9 per prediction:
///   advantage = min(Σgain − sigmas·error, Σpaired drop) − Σcost·(progress of a Full step)
/// Costs are in Full steps, not seconds, so identical runs make identical decisions.
///
/// The length starts at trial_steps, doubles with each accepted prediction and halves with each
/// reverted one. A probe waits until trial_share allows its length, because a few long predictions
/// stand out from the noise better than many short ones. The first probe ignores the confidence,
/// and so do probes while they make up at most half of the share. Predict begins only after the
/// four Full losses that are needed to judge the previous prediction.
///
/// Step lengths follow the decisions of Correct: a shrunk prediction sets the next step length, a
/// reverted one halves it, and an accepted one doubles it, up to one predicted step.
class PredictGate {
 public:
  struct Allowance {
    bool open = false;
    bool trial = false;
    bool overdue = false;  // whether the prediction is a probe that ignores the confidence
    std::int64_t steps = 0;
    double step_length = 1;  // length of the first step, in predicted steps
  };
  enum class Verdict { kUntried, kBehind, kAhead };

  explicit PredictGate(const PhaseConfig& config);
  /// Returns the allowed length of a Predict phase that begins now.
  Allowance allowance() const;
  /// Returns the decrease of the loss by predictions so far, minus the decrease by Full steps of
  /// the same cost, or 0 if unknown. Does not estimate the final loss: later steps close most of
  /// the gap.
  double advantage() const;
  /// Returns whether enough losses are known to judge the last prediction.
  bool ready() const;
  Verdict verdict() const;
  std::string explanation() const;

  void add_step() { ++steps_; }
  void add_full_loss(double loss);
  /// Sets the length of the next Predict and of its first step. Called if an advisor chooses these
  /// lengths.
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
  std::size_t window_;            // maximum number of losses on one side of a prediction
  std::int64_t steps_ = 0;        // number of steps in all phases
  std::int64_t trial_steps_ = 0;  // length of the next probe
  std::int64_t extrapolations_ = 0;
  std::int64_t length_;  // length of the next Predict
  double step_length_ = 1;
  Evidence past_;  // all predictions except the last
  Extrapolation last_;
  std::vector<double> before_;  // Full losses before the last prediction
  std::vector<double> after_;   // first `window_` Full losses after it
  std::vector<double> recent_;  // last `window_` Full losses after it
};

/// The line w(x) = snapshot + x·direction of a prediction. The unit of the position x is the first
/// predicted step. At position 0, weights are bit-identical to the snapshot.
class PredictionLine {
 public:
  /// Sets the direction to the predictor's current one. Returns false if the predictor has none
  /// yet.
  bool compute_direction(Trainable& model, Predictor& predictor);
  /// Returns whether the direction is finite and nonzero, or the predictor is zero. Blocks.
  bool wait_for_valid_direction(Trainable& model) const;
  /// Takes the snapshot, position 0. Call compute_direction first.
  void start(Trainable& model);
  bool moves() const { return !directions_.empty(); }

  void advance(Trainable& model, double length);
  /// Sets the weights to `position` on the line, starting from the snapshot.
  void return_to(Trainable& model, double position);
  double position() const { return position_; }
  const std::vector<Tensor>& directions() const { return directions_; }
  /// Returns the slope of the loss per unit of position, computed from the last measured gradient.
  double wait_for_slope(Trainable& model) const;
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
  /// Makes the predictors of config.variants or config.predictor. Throws ConfigError.
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

struct PredictState {
  explicit PredictState(PhaseParts& shared);

  PhaseParts& parts;
  PredictorSet predictors;
  std::vector<std::unique_ptr<ExtrapolationAdvisor>> advisors;
  DirectionTrust trust;
  PredictGate gate;
  PredictionLine line;
  Extrapolation extrapolation;
  bool has_reported_no_direction = false;
  bool has_held_snapshot = false;  // whether a snapshot has fit into memory; not saved
  /// Cost of directions and advisors since the last prediction.
  double direction_cost = 0;
  PredictGate::Verdict verdict = PredictGate::Verdict::kUntried;  // last reported verdict

  const SkipBackwardConfig& config() const { return parts.config().skip_backward; }
  bool predicts() const { return parts.may_leave_full(); }
  /// Computes the predictor's direction and counts its cost. Returns false if there is none yet. If
  /// memory has no room for direction and snapshot, disables predictions and returns false.
  bool compute_direction(PhaseOutcome& outcome);
  /// Passes an update to predictors and advisors. Disables predictions if memory is short.
  void observe_update(const GradientMeasurement& measurement, PhaseOutcome& outcome);
  void count_cost(ExtrapolationAdvisor& advisor, PhaseOutcome& outcome);
  void report_no_direction(PhaseOutcome& outcome);
  /// Returns the gate's allowance, with limited probes: the run's extra cost plus the maximum cost
  /// of the probe must be at most 2·trial_share of the steps so far or, for the first probe, of all
  /// steps.
  PredictGate::Allowance allowance() const;
  /// Returns the maximum extra cost of a probe, without slopes that are already measured.
  double estimated_cost(const PredictGate::Allowance& allowance) const;
  /// Returns the number of slopes that the confidence requires, at most those in a Full phase.
  std::int64_t slopes_needed() const;
  /// Drops the direction and all measurements along it.
  void forget_direction();
  /// Resets the predictors. Keeps the direction of an undecided prediction until the decision.
  void reset_predictors();
  /// Moves the weights that predictors have recorded (Predictor::follow).
  void follow_extrapolation();
  /// Ends the decided prediction, passes on its result and frees the line.
  void close_extrapolation();
  /// Applies an advisor's choice of predictor and lengths, if any.
  void apply_choice();
  PredictorSet make_predictors() const;

  void save(State& state) const;
  void load(const State& state);
};

}  // namespace hybrid_trainer
