#pragma once

#include "phases/divergence.h"
#include "phases/method.h"
#include "phases/skip_backward/prediction.h"

namespace hybrid_trainer {

/// Skip-backward prediction: Predict moves the weights along a predicted direction, on forward passes
/// alone, and Correct decides on the move.
class SkipBackwardMethod final : public Method {
 public:
  explicit SkipBackwardMethod(PhaseParts& parts) : Method(parts), prediction_(parts) {}
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config);
  static MethodTraits traits(const PhaseConfig&) {
    return {.skips_backward = true, .steps_to_fill_memory = 64};
  }

  void allow(PhaseSignals& signals) override;
  /// Warmup and Full: gradient and update. In Full, before a Predict may come, it also measures the
  /// slope along the predicted direction.
  void train(const Batch& batch, PhaseOutcome& outcome) override;
  /// Where the predictor has no direction, or memory is too short to begin, the step is one of Full;
  /// where memory is too short on the way, the step is Correct's, which reverts. Nothing is predicted
  /// after a shortage.
  void enter_predict(PhaseOutcome& outcome) override;
  /// Forward only. Watches the loss and moves along the line; every correction_interval steps a true
  /// gradient tells how far the loss still falls along the line. The loss is compared with that of
  /// the first forward, which is at the snapshot.
  void predict(const Batch& batch, PhaseOutcome& outcome) override;
  void enter_correct(PhaseOutcome& outcome) override;
  /// Its first step decides on the prediction, then each step is an update. After a revert it first
  /// trains on the batches of Predict, each as the step that it was, and stays in Full's precision to
  /// its end, so that the weights are bit for bit those of a run that never predicted, unless the
  /// optimizer state was dropped. A prediction that met a loss that is not finite, never moved, or for
  /// which memory was too short, also for the comparison, is reverted without it.
  void correct(const Batch& batch, PhaseOutcome& outcome) override;
  void see_update(const GradientMeasurement& measurement, PhaseOutcome& outcome) override {
    prediction_.see_update(measurement, outcome);
  }
  /// Says in one line, when the gate's verdict has changed, why Predict is entered or not.
  void report(PhaseOutcome& outcome) override;
  void reset_predictor() override { prediction_.begin_predictors_anew(); }
  void give_up() override;
  std::int64_t undecided_steps() const override {
    return prediction_.jump.open ? prediction_.jump.steps : 0;
  }
  void save(State& state) const override { prediction_.save(state); }
  void load(const State& state) override { prediction_.load(state); }

 private:
  // Full.
  bool wants_slope() const;
  void measure_slope(const GradientMeasurement& measurement, PhaseOutcome& outcome);

  // Predict.
  bool begin(PhaseOutcome& outcome);
  void predict_step(const Batch& batch, PhaseOutcome& outcome);
  Verdict forward(const Batch& batch, PhaseOutcome& outcome);
  Verdict micro_correct(const Batch& batch, PhaseOutcome& outcome);
  void take_slope(double slope, PhaseOutcome& outcome);
  void advance();

  // Correct.
  struct Comparison {
    double position = 0;           // of the predicted point
    double before = 0, after = 0;  // mean losses of the probes at the snapshot and there
    double slope = 0;              // per position, there
    std::string alarm;             // why that point is rejected at once, or ""
  };
  std::size_t probe_count() const;
  double probe_loss(PhaseOutcome& outcome);
  Comparison compare(const GradientMeasurement& measurement, PhaseOutcome& outcome);
  double choose(const Comparison& losses, double& kept_loss, PhaseOutcome& outcome);
  void judge(const GradientMeasurement& measurement, PhaseOutcome& outcome);
  GradientMeasurement wait_for_gradient_to_judge(const Batch& batch, PhaseOutcome& outcome);
  GradientMeasurement try_to_judge(const Batch& batch, PhaseOutcome& outcome);
  void revert_unseen(PhaseOutcome& outcome);
  void replay(std::vector<Batch> batches, PhaseOutcome& outcome);
  GradientMeasurement decide(const Batch& batch, PhaseOutcome& outcome);

  Prediction prediction_;
};

}  // namespace hybrid_trainer
