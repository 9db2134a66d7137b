#pragma once

#include <memory>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

/// A prediction, from the first step of Predict to the decision in Correct.
struct Jump {
  bool open = false;  // there is one, and it is not decided on yet
  std::int64_t planned_steps = 0;
  std::int64_t steps = 0;  // done in Predict
  double step_length = 1;  // of the next move, in positions on the line
  double limit = 0;        // position where, by a micro-correction, the slope vanishes; 0: none
  double start_loss = 0;   // at the snapshot, of the first forward: no dropout, Predict's precision
  double mean_loss = 0;    // of the last gradients before: with dropout, in Full's precision
  double slope = 0;        // expected loss change per position at the snapshot
  double curvature = 0;    // of the loss along the line, from micro-corrections
  double confidence = 0;
  double cost = 0;  // aimed steps, forwards, micro-corrections, probes, repeated gradients
  bool trial = false;
  bool stop = false;
  bool failed = false;           // a loss on the way was not finite
  bool lacks_room = false;       // memory was too short on the way
  std::vector<Batch> batches{};  // of Predict, kept, in order; the first ones are the probes

  // Of the decision.
  Decision decision = Decision::kNone;
  double kept_fraction = 0;
  double paired_drop = 0;       // loss before less loss after on the same batches; 0 if reverted
  std::int64_t updates = 0;     // of Correct
  double left_at = 0;           // its position in the end; 0 if reverted
  double next_step_length = 1;  // of the next one's first step, as this one teaches
  bool moved = true;

  /// Of the loss, from the snapshot to a position.
  double expected_change(double position) const {
    return slope * position + 0.5 * curvature * position * position;
  }
};

/// What the next prediction is made with.
struct JumpChoice {
  PredictionArm arm;
  double step_length = 1;  // of its first step, in predicted steps
};

/// How far a prediction goes, and how sure it is.
struct JumpPlan {
  std::int64_t steps = 1;
  double step_length = 1;
  double confidence = 0;
};

/// What the run has been charged so far, in Full steps.
struct RunCosts {
  double full_flops = 0;  // operations of a Full step
  double steps = 0;       // with the one under way
  double extra = 0;       // beyond a Full step for each of them
  double advice = 0;      // for advice, within `extra`
  bool pays = false;      // whether predictions are measured to be ahead of Full
};

/// Has a say in what a prediction is made with. The gate still decides whether there is one. By
/// default it says nothing. A new one is a class in phases/experiments/ and a line in
/// jump_advisor.cpp.
class JumpAdvisor {
 public:
  virtual ~JumpAdvisor() = default;
  /// Predictor and length of the next prediction; absent where they are chosen elsewhere.
  virtual std::optional<JumpChoice> choice() const { return {}; }
  /// The prediction that begins now, of at most the granted steps.
  virtual JumpPlan plan(const JumpPlan& granted) { return granted; }
  /// After each true update, with what it measured.
  virtual void see_update(const GradientMeasurement&, const RunCosts&) {}
  /// The prediction under way was decided on.
  virtual void see_jump(const Jump&) {}
  /// Why it chose what it did, or "".
  virtual std::string explanation() const { return ""; }
  /// Full steps that it is charged for what it computed since the last call; absent where it never
  /// computes.
  virtual std::optional<double> take_cost(double /*full_flops*/) { return {}; }
  /// The most that a plan of so many steps is charged.
  virtual double price_of(std::int64_t /*steps*/, double /*full_flops*/) const { return 0; }
  virtual void save(State&) const {}
  virtual void load(const State&) {}
};

/// Those that the config asks for.
std::vector<std::unique_ptr<JumpAdvisor>> make_jump_advisors(const PhaseConfig& config);

}  // namespace hybrid_trainer
