#pragma once

#include "phases/skip_backward/prediction.h"

namespace hybrid_trainer {

/// Predict: forward only. Watches the loss and moves along the line; every correction_interval
/// steps a true gradient tells how far the loss still falls along the line. The loss is compared
/// with that of the first forward, which is at the snapshot.
///
/// Where the predictor has no direction, or memory is too short to begin, the step is one of Full;
/// where memory is too short on the way, the step is Correct's, which reverts. Nothing is predicted
/// after a shortage.
class PredictExecutor {
 public:
  explicit PredictExecutor(Prediction& prediction)
      : prediction_(prediction), parts_(prediction.parts) {}
  void enter(PhaseOutcome& outcome);
  void run(const Batch& batch, PhaseOutcome& outcome);

 private:
  bool begin(PhaseOutcome& outcome);
  void predict(const Batch& batch, PhaseOutcome& outcome);
  Verdict forward(const Batch& batch, PhaseOutcome& outcome);
  Verdict micro_correct(const Batch& batch, PhaseOutcome& outcome);
  void take_slope(double slope, PhaseOutcome& outcome);
  void advance();
  Prediction& prediction_;
  PhaseParts& parts_;
};

}  // namespace hybrid_trainer
