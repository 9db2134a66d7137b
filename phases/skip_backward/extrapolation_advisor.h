#pragma once

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

/// A prediction, from the first step of Predict to the decision in Correct.
struct Extrapolation {
  bool open = false;  // whether the prediction is undecided
  std::int64_t planned_steps = 0;
  std::int64_t steps = 0;  // completed steps of Predict
  double step_length = 1;  // length of the next move, in units of position
  double limit = 0;        // position of zero slope, from a micro-correction; 0: none
  /// Loss of the first forward pass, at the snapshot (no dropout, Predict's precision).
  double start_loss = 0;
  /// Mean loss of the last gradients before Predict (dropout, Full's precision).
  double mean_loss = 0;
  double slope = 0;      // expected loss change per position at the snapshot
  double curvature = 0;  // curvature of the loss along the line, from micro-corrections
  double confidence = 0;
  double cost = 0;
  bool trial = false;
  bool stop = false;
  bool failed = false;            // a loss was not finite
  bool is_out_of_memory = false;  // memory was too short
  /// Kept batches of Predict, in order, beginning with the probe batches.
  std::vector<Batch> batches{};

  Decision decision = Decision::kNone;
  double kept_fraction = 0;
  double paired_drop = 0;       // mean loss decrease on the same batches; 0 if reverted
  std::int64_t updates = 0;     // updates in Correct
  double final_position = 0;    // final position; 0 if reverted
  double next_step_length = 1;  // length of the first step of the next prediction
  bool moved = true;

  double expected_change(double position) const {
    return slope * position + 0.5 * curvature * position * position;
  }
};

struct ExtrapolationChoice {
  PredictionVariant arm;
  double step_length = 1;  // length of the first step, in predicted steps
};

struct ExtrapolationPlan {
  std::int64_t steps = 1;
  double step_length = 1;
  double confidence = 0;
};

struct RunCosts {         // costs in Full steps
  double full_flops = 0;  // operations of a Full step
  double steps = 0;       // number of steps, including the current one
  double extra = 0;       // cost beyond one Full step per step
  double advice = 0;      // cost of advisors, included in `extra`
  bool pays = false;      // whether predictions are better than Full according to the gate
};

/// Chooses settings of predictions; the gate decides whether to predict. The base class chooses
/// none. Add advisors in phases/experiments/ and in extrapolation_advisor.cpp.
class ExtrapolationAdvisor {
 public:
  virtual ~ExtrapolationAdvisor() = default;
  /// Returns the predictor and the length of the next prediction, if this advisor chooses both.
  virtual std::optional<ExtrapolationChoice> choice() const { return {}; }
  /// Returns the plan of the prediction that begins now, with at most the allowed steps.
  virtual ExtrapolationPlan plan(const ExtrapolationPlan& allowed) { return allowed; }
  /// Called after each update by a computed gradient, with its measurement.
  virtual void observe_update(const GradientMeasurement&, const RunCosts&) {}
  virtual void observe_result(const Extrapolation&) {}
  virtual std::string explanation() const { return ""; }
  /// Returns the cost in Full steps since the last call; absent if the advisor has no cost.
  virtual std::optional<double> take_cost(double /*full_flops*/) { return {}; }
  /// Returns the maximum cost of a plan of `steps`.
  virtual double estimated_cost(std::int64_t /*steps*/, double /*full_flops*/) const { return 0; }
  virtual void save(State&) const {}
  virtual void load(const State&) {}
};

std::vector<std::unique_ptr<ExtrapolationAdvisor>> make_extrapolation_advisors(
    const PhaseConfig& config);

}  // namespace hybrid_trainer
