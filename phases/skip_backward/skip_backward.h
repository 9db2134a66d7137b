#pragma once

#include "phases/method.h"
#include "phases/skip_backward/prediction.h"

namespace hybrid_trainer {

/// Skip-backward prediction: Predict moves the weights with forward passes only, and Correct
/// decides whether to keep the change.
class SkipBackwardMethod final : public Method {
 public:
  explicit SkipBackwardMethod(PhaseParts& parts) : Method(parts), prediction_(parts) {}
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config);
  static MethodTraits traits(const PhaseConfig&) {
    return {.skips_backward = true, .steps_to_fill_memory = 64};
  }

  void allow(PhaseSignals& signals) override;
  /// Runs a step of Warmup or Full. In Full, it also measures the slope along the direction.
  void train(const Batch& batch, PhaseOutcome& outcome) override;
  /// Turns the step into a Full step if the predictor has no direction or memory is too short to
  /// begin. If memory becomes too short later, turns the step into a Correct step, which reverts
  /// the prediction. There are no further predictions after memory was too short.
  void enter_predict(PhaseOutcome& outcome) override;
  /// Runs a forward pass, compares its loss with the prediction's first loss, and moves the weights
  /// along the line. Every correction_interval steps, a gradient measures the remaining slope.
  void predict(const Batch& batch, PhaseOutcome& outcome) override;
  void enter_correct(PhaseOutcome& outcome) override;
  /// Decides on the prediction in the first step; other steps are updates. After a revert, first
  /// trains on the batches of Predict with their original step numbers, as in Full. Weights are
  /// then bit-identical to a run without the prediction, unless the optimizer state was dropped.
  /// Reverts directly if a loss was not finite, weights never moved, or memory was short.
  void correct(const Batch& batch, PhaseOutcome& outcome) override;
  void observe_update(const GradientMeasurement& measurement, PhaseOutcome& outcome) override {
    prediction_.observe_update(measurement, outcome);
  }
  void report(PhaseOutcome& outcome) override;
  void reset_predictor() override { prediction_.reset_predictors(); }
  void disable() override;
  std::int64_t undecided_steps() const override {
    return prediction_.extrapolation.open ? prediction_.extrapolation.steps : 0;
  }
  void save(State& state) const override { prediction_.save(state); }
  void load(const State& state) override { prediction_.load(state); }

 private:
  bool wants_slope() const;
  void measure_slope(const GradientMeasurement& measurement, PhaseOutcome& outcome);

  bool begin(PhaseOutcome& outcome);
  void predict_step(const Batch& batch, PhaseOutcome& outcome);
  Verdict forward(const Batch& batch, PhaseOutcome& outcome);
  Verdict micro_correct(const Batch& batch, PhaseOutcome& outcome);
  void take_slope(double slope, PhaseOutcome& outcome);
  void advance();

  struct Comparison {
    double position = 0;  // position of the predicted point
    // Mean losses on the probe batches at the snapshot and at the predicted point.
    double before = 0, after = 0;
    double slope = 0;   // slope per unit of position, at the predicted point
    std::string alarm;  // reason for rejecting the point regardless of the losses, or ""
  };
  std::size_t probe_count() const;
  double probe_loss(PhaseOutcome& outcome);
  Comparison compare(const GradientMeasurement& measurement, PhaseOutcome& outcome);
  double choose(const Comparison& losses, double& kept_loss, PhaseOutcome& outcome);
  void judge(const GradientMeasurement& measurement, PhaseOutcome& outcome);
  GradientMeasurement wait_for_decision_gradient(const Batch& batch, PhaseOutcome& outcome);
  GradientMeasurement try_decision_gradient(const Batch& batch, PhaseOutcome& outcome);
  void revert_unmeasured(PhaseOutcome& outcome);
  void replay(std::vector<Batch> batches, PhaseOutcome& outcome);
  GradientMeasurement decide(const Batch& batch, PhaseOutcome& outcome);

  PredictState prediction_;
};

}  // namespace hybrid_trainer
