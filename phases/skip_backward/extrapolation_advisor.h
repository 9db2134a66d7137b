#pragma once

#include <memory>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

/// A prediction, from the first step of Predict to the decision in Correct.
struct Extrapolation {
  bool open = false;  // there is an undecided prediction
  std::int64_t planned_steps = 0;
  std::int64_t steps = 0;  // completed in Predict
  double step_length = 1;  // of the next move, in positions on the line
  double limit = 0;        // position of zero slope, from a micro-correction; 0: none
  double start_loss = 0;   // first forward pass, at the snapshot: no dropout, Predict's precision
  double mean_loss = 0;    // of the last gradients before: with dropout, in Full's precision
  double slope = 0;        // expected loss change per position at the snapshot
  double curvature = 0;    // of the loss along the line, from micro-corrections
  double confidence = 0;
  double cost = 0;  // directions, forwards, micro-corrections, probe losses, repeated gradients
  bool trial = false;
  bool stop = false;
  bool failed = false;            // a loss was not finite
  bool is_out_of_memory = false;  // memory was too short
  std::vector<Batch> batches{};   // kept batches of Predict in order, first the probe batches

  // Set by the decision.
  Decision decision = Decision::kNone;
  double kept_fraction = 0;
  double paired_drop = 0;       // mean loss decrease on the same batches; 0 if reverted
  std::int64_t updates = 0;     // of Correct
  double final_position = 0;    // final position; 0 if reverted
  double next_step_length = 1;  // first step of the next prediction, as learned from this one
  bool moved = true;

  /// Returns the expected loss change from the snapshot to a position.
  double expected_change(double position) const {
    return slope * position + 0.5 * curvature * position * position;
  }
};

/// Settings of the next prediction.
struct ExtrapolationChoice {
  PredictionVariant arm;
  double step_length = 1;  // of its first step, in predicted steps
};

/// Length of a prediction, and its confidence.
struct ExtrapolationPlan {
  std::int64_t steps = 1;
  double step_length = 1;
  double confidence = 0;
};

/// Cost of the run so far, in Full steps.
struct RunCosts {
  double full_flops = 0;  // operations of a Full step
  double steps = 0;       // including the current one
  double extra = 0;       // beyond one Full step per step
  double advice = 0;      // for advisors, included in `extra`
  bool pays = false;      // whether predictions are measured to be ahead of Full
};

/// Chooses settings of predictions (the gate decides whether to predict); by default none. To add
/// one, add a class in phases/experiments/ and a line in extrapolation_advisor.cpp.
class ExtrapolationAdvisor {
 public:
  virtual ~ExtrapolationAdvisor() = default;
  /// Returns predictor and length of the next prediction, if this advisor chooses them.
  virtual std::optional<ExtrapolationChoice> choice() const { return {}; }
  /// Returns the plan of the prediction that begins now, within the allowed steps.
  virtual ExtrapolationPlan plan(const ExtrapolationPlan& allowed) { return allowed; }
  /// Called after each update by a true gradient, with its measurement.
  virtual void observe_update(const GradientMeasurement&, const RunCosts&) {}
  /// Called when the current prediction is decided.
  virtual void observe_result(const Extrapolation&) {}
  /// Returns the reason for its choice, or "".
  virtual std::string explanation() const { return ""; }
  /// Returns the cost in Full steps since the last call; absent if it never computes.
  virtual std::optional<double> take_cost(double /*full_flops*/) { return {}; }
  /// Returns the maximum cost of a plan of `steps`.
  virtual double estimated_cost(std::int64_t /*steps*/, double /*full_flops*/) const { return 0; }
  virtual void save(State&) const {}
  virtual void load(const State&) {}
};

std::vector<std::unique_ptr<ExtrapolationAdvisor>> make_extrapolation_advisors(
    const PhaseConfig& config);

}  // namespace hybrid_trainer
