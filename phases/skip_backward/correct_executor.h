#pragma once

#include <string>
#include <vector>

#include "phases/skip_backward/prediction.h"

namespace hybrid_trainer {

/// Correct: its first step decides on the prediction, then each step is an update. After a revert
/// it first trains on the batches of Predict, each as the step that it was, and stays in Full's
/// precision to its end, so that the weights are bit for bit those of a run that never predicted,
/// unless the optimizer state was dropped. A prediction that met a loss that is not finite, never
/// moved, or for which memory was too short, also for the comparison, is reverted without it.
class CorrectExecutor {
 public:
  explicit CorrectExecutor(Prediction& prediction)
      : prediction_(prediction), parts_(prediction.parts) {}
  void enter(PhaseOutcome& outcome);
  void run(const Batch& batch, PhaseOutcome& outcome);

 private:
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
  Prediction& prediction_;
  PhaseParts& parts_;
};

}  // namespace hybrid_trainer
