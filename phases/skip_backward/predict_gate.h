#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "phases/skip_backward/jump.h"

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
