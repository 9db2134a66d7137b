#pragma once

#include <functional>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/phases/phase_outcome.h"
#include "phases/phase_parts.h"

namespace hybrid_trainer {

/// Late gradients and updates that are under way arrive, and the weights are the exact ones.
void settle(PhaseParts& parts, PhaseOutcome& outcome);

/// What a step does in one phase. Executors hold no state of their own; it is all in PhaseParts.
class PhaseExecutor {
 public:
  explicit PhaseExecutor(PhaseParts& parts) : parts_(parts) {}
  virtual ~PhaseExecutor() = default;
  /// Called before the first step of the phase. May turn to another phase, which the step is of then.
  virtual void enter(PhaseOutcome& outcome) = 0;
  /// One step. `outcome` already has its phase and the cost of enter; the rest is added to it. Where
  /// it turns to another phase, it has not used the batch.
  virtual void run(const Batch& batch, PhaseOutcome& outcome) = 0;

 protected:
  PhaseParts& parts_;
};

/// Warmup and Full: gradient and update. In Warmup, a learning rate that is too low may be raised
/// before them. In Full, before a Predict may come, it also measures the
/// slope along the predicted direction.
class UpdateExecutor : public PhaseExecutor {
 public:
  UpdateExecutor(PhaseParts& parts, Phase phase) : PhaseExecutor(parts), phase_(phase) {}
  void enter(PhaseOutcome& outcome) override;
  void run(const Batch& batch, PhaseOutcome& outcome) override;

 private:
  bool wants_slope() const;
  void take_slope(const GradientMeasurement& measurement, PhaseOutcome& outcome);
  GradientMeasurement measure(const Batch& batch, PhaseOutcome& outcome);
  Phase phase_;
};

/// Predict: forward only. Watches the loss and moves along the line; every correction_interval
/// steps a true gradient tells how far the loss still falls along the line. The loss is compared
/// with that of the first forward, which is at the snapshot.
///
/// Where the predictor has no direction, or memory is too short to begin, the step is one of Full;
/// where memory is too short on the way, the step is Correct's, which reverts. Nothing is predicted
/// after a shortage.
class PredictExecutor : public PhaseExecutor {
 public:
  using PhaseExecutor::PhaseExecutor;
  void enter(PhaseOutcome& outcome) override;
  void run(const Batch& batch, PhaseOutcome& outcome) override;

 private:
  bool begin(PhaseOutcome& outcome);
  void predict(const Batch& batch, PhaseOutcome& outcome);
  Verdict forward(const Batch& batch, PhaseOutcome& outcome);
  Verdict micro_correct(const Batch& batch, PhaseOutcome& outcome);
  void take_slope(double slope, PhaseOutcome& outcome);
  void advance();
};

/// Correct: its first step decides on the prediction, then each step is an update. After a revert
/// it first trains on the batches of Predict, each as the step that it was, and stays in Full's
/// precision to its end, so that the weights are bit for bit those of a run that never predicted,
/// unless the optimizer state was dropped. A prediction that met a loss that is not finite, never
/// moved, or for which memory was too short, also for the comparison, is reverted without it.
class CorrectExecutor : public PhaseExecutor {
 public:
  using PhaseExecutor::PhaseExecutor;
  void enter(PhaseOutcome& outcome) override;
  void run(const Batch& batch, PhaseOutcome& outcome) override;

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
  GradientMeasurement try_to_judge(const Batch& batch, PhaseOutcome& outcome);
  void revert_unseen(PhaseOutcome& outcome);
  void replay(std::vector<Batch> batches, PhaseOutcome& outcome);
  GradientMeasurement decide(const Batch& batch, PhaseOutcome& outcome);
};

/// Predict without the optimizer state: steps like Full's, whose exact updates arrive late. Ends
/// early where what was predicted of them is too far off.
class SpeculateExecutor : public PhaseExecutor {
 public:
  using PhaseExecutor::PhaseExecutor;
  void enter(PhaseOutcome&) override { parts_.enter_model(Phase::kPredict); }
  void run(const Batch& batch, PhaseOutcome& outcome) override;

 protected:
  void judge(const DelayedUpdate& arrived, PhaseOutcome& outcome);
};

/// Predict without other ranks: a step goes on with this rank's gradient alone; that of all ranks is
/// judged, and makes its update, when it arrives. The loss of a step is that of the step whose
/// gradient arrived in it, of all ranks; in the first ones, where none did, that of its own.
class OwnGradientExecutor final : public SpeculateExecutor {
 public:
  using SpeculateExecutor::SpeculateExecutor;
  void run(const Batch& batch, PhaseOutcome& outcome) override;
};

/// Predict without other ranks for several steps at a time: each rank trains on by itself, and what
/// it tells of a step is its own; the monitor judges none of them.
class LocalStepExecutor final : public PhaseExecutor {
 public:
  using PhaseExecutor::PhaseExecutor;
  void enter(PhaseOutcome&) override { parts_.enter_model(Phase::kPredict); }
  void run(const Batch& batch, PhaseOutcome& outcome) override;
};

/// Correct after any of these: the exact weights, then updates at once.
class ExactExecutor final : public UpdateExecutor {
 public:
  explicit ExactExecutor(PhaseParts& parts) : UpdateExecutor(parts, Phase::kCorrect) {}
  void enter(PhaseOutcome& outcome) override {
    settle(parts_, outcome);
    parts_.enter_model(Phase::kCorrect);
  }
};

/// Judges the measurement and applies its gradient, or skips the update where it is not finite or the
/// config wants that, and does what else it wants. Fills loss, norm, updates, recovery and event.
/// Throws Diverged after too many skips in a row, or where the run is to end. `apply`, in place of
/// the model's, is also told of a skipped one.
void update(PhaseParts& parts, const GradientMeasurement& measurement, PhaseOutcome& outcome,
            const std::function<void(bool applies)>& apply = {});

/// Tells of steps that ranks made by themselves and that made no update. Throws Diverged where all of
/// them are such.
void tell_skipped(PhaseParts& parts, const LocalStep& step, PhaseOutcome& outcome);

/// Appends to outcome.event.
void tell(PhaseOutcome& outcome, const std::string& text);

}  // namespace hybrid_trainer
