#pragma once

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

}  // namespace hybrid_trainer
