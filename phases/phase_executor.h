#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/phases/phase_outcome.h"
#include "phases/phase_parts.h"

namespace hybrid_trainer {

/// What a step does in one phase. Executors hold no state of their own; it is all in PhaseParts.
class PhaseExecutor {
 public:
  explicit PhaseExecutor(PhaseParts& parts) : parts_(parts) {}
  virtual ~PhaseExecutor() = default;
  /// Before the first step of the phase.
  virtual void enter() = 0;
  virtual PhaseOutcome run(const Batch& batch) = 0;

 protected:
  PhaseParts& parts_;
};

/// Warmup and Full: gradient and update. In Full, before a Predict may come, it also measures the
/// slope along the predicted direction.
class UpdateExecutor : public PhaseExecutor {
 public:
  UpdateExecutor(PhaseParts& parts, Phase phase) : PhaseExecutor(parts), phase_(phase) {}
  void enter() override { parts_.model.enter_phase(phase_); }
  PhaseOutcome run(const Batch& batch) override;

 private:
  bool wants_slope() const;
  Phase phase_;
};

/// Predict: forward only. Watches the loss and moves along the line; every correction_interval
/// steps a true gradient tells how far the line still goes down.
class PredictExecutor : public PhaseExecutor {
 public:
  using PhaseExecutor::PhaseExecutor;
  void enter() override;
  PhaseOutcome run(const Batch& batch) override;

 private:
  Verdict forward(const Batch& batch, PhaseOutcome& outcome);
  Verdict micro_correct(const Batch& batch, PhaseOutcome& outcome);
  void take_slope(double slope, PhaseOutcome& outcome);
  void advance();
  void roll_back(PhaseOutcome& outcome);
};

/// Correct: its first step decides on the prediction, then each step is an update. After a revert
/// it first trains on the batches of Predict, each as the step that it was, so that the weights are
/// bit for bit those of a run that never predicted; that too is charged to the prediction.
class CorrectExecutor : public PhaseExecutor {
 public:
  using PhaseExecutor::PhaseExecutor;
  void enter() override { parts_.model.enter_phase(Phase::kCorrect); }
  PhaseOutcome run(const Batch& batch) override;

 private:
  struct Comparison {
    double position = 0;           // of the predicted point
    double before = 0, after = 0;  // mean losses of the probes at the snapshot and there
    double slope = 0;              // per position, there
    std::string alarm;             // why that point is out of the question, or ""
  };
  std::size_t probe_count() const;
  double probe_loss(PhaseOutcome& outcome);
  Comparison compare(const GradientMeasurement& measurement, PhaseOutcome& outcome);
  double choose(const Comparison& losses, double& kept_loss, PhaseOutcome& outcome);
  void replay(PhaseOutcome& outcome);
  void decide(const Batch& batch, GradientMeasurement& measurement, PhaseOutcome& outcome);
};

/// Judges the measurement and applies its gradient, or skips the update where it is not finite.
/// Fills loss, norm, updates and event. Throws Diverged after too many skips in a row.
void update(PhaseParts& parts, const GradientMeasurement& measurement, PhaseOutcome& outcome);

/// Appends to outcome.event.
void say(PhaseOutcome& outcome, const std::string& text);

}  // namespace hybrid_trainer
