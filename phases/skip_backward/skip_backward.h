#pragma once

#include "phases/method.h"
#include "phases/skip_backward/correct_executor.h"
#include "phases/skip_backward/predict_executor.h"
#include "phases/skip_backward/prediction.h"

namespace hybrid_trainer {

/// Warmup and Full: gradient and update. In Full, before a Predict may come, it also measures the
/// slope along the predicted direction.
class FullExecutor {
 public:
  explicit FullExecutor(Prediction& prediction)
      : prediction_(prediction), parts_(prediction.parts) {}
  void run(const Batch& batch, PhaseOutcome& outcome);

 private:
  bool wants_slope() const;
  void take_slope(const GradientMeasurement& measurement, PhaseOutcome& outcome);
  Prediction& prediction_;
  PhaseParts& parts_;
};

/// Skip-backward prediction: Predict moves the weights along a predicted direction, on forward passes
/// alone, and Correct decides on the move.
class SkipBackwardMethod final : public Method {
 public:
  explicit SkipBackwardMethod(PhaseParts& parts)
      : Method(parts),
        prediction_(parts),
        full_(prediction_),
        predict_(prediction_),
        correct_(prediction_) {}
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config);

  void allow(PhaseSignals& signals) override;
  void train(const Batch& batch, PhaseOutcome& outcome) override { full_.run(batch, outcome); }
  void enter_predict(PhaseOutcome& outcome) override { predict_.enter(outcome); }
  void predict(const Batch& batch, PhaseOutcome& outcome) override { predict_.run(batch, outcome); }
  void enter_correct(PhaseOutcome& outcome) override { correct_.enter(outcome); }
  void correct(const Batch& batch, PhaseOutcome& outcome) override { correct_.run(batch, outcome); }
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
  Prediction prediction_;
  FullExecutor full_;
  PredictExecutor predict_;
  CorrectExecutor correct_;
};

}  // namespace hybrid_trainer
