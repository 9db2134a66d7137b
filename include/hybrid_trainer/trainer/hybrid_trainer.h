#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/config/phase_precision.h"
#include "hybrid_trainer/data/dataset.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/observability/step_record.h"
#include "hybrid_trainer/phases/phase_machine.h"

namespace hybrid_trainer {

class BatchUpload;
class Communicator;
class MemoryPlaces;
class ModelTrainable;
class StepRecorder;
class TrainerCheckpoints;
class TrainerMessages;

/// Thrown by a step that ends the run; `record` describes it.
class DivergedStep : public Diverged {
 public:
  DivergedStep(const std::string& message, StepRecord of)
      : Diverged(message), record(std::move(of)) {}
  StepRecord record;
};

/// Statistics of rollbacks to checkpoints.
struct RollBacks {
  std::int64_t count = 0, steps = 0;  // number of rollbacks; total number of steps discarded
  std::int64_t target = 0;            // step of the last rollback's checkpoint
  std::int64_t failed = 0;            // last step of the run that has failed
  double rate_factor = 1;             // factor on the schedule's learning rate
};

/// Compares the validation losses of a run, selects the checkpoints to keep (checkpoint.keep_best),
/// and decides when to stop early (training.patience). Checkpoints include its state.
class LossJudge {
 public:
  explicit LossJudge(const HybridTrainerConfig& config);
  bool is_on() const { return keep_ > 0 || patience_ > 0; }
  /// Returns whether to evaluate after this step. Defers an evaluation that is `due` while weights
  /// are predicted.
  bool evaluates(bool due, bool are_predicted);
  /// Records the validation loss after `step`. Returns whether to keep a checkpoint of it.
  bool judge(std::int64_t step, double loss);
  /// Returns the checkpoints with the lowest losses, sorted by loss, then by step.
  const std::vector<BestCheckpoint>& best() const { return best_; }
  /// Returns the checkpoint with the lowest loss, if any.
  std::optional<BestCheckpoint> lowest() const {
    return best_.empty() ? std::nullopt : std::optional(best_.front());
  }
  /// Removes `step`, whose checkpoint could not be saved, from the best checkpoints.
  void forget(std::int64_t step);
  /// Removes all checkpoints but `steps`. Returns whether one of the best was removed.
  bool keep_only(const std::vector<std::int64_t>& steps);
  /// Records the best checkpoints at the newest of `return_points`, the steps to which a rollback
  /// may return. Removes the records of steps that are no longer return points.
  void remember(const std::vector<std::int64_t>& return_points);
  /// Returns the checkpoints to keep: the best now and at each return point.
  std::vector<std::int64_t> kept() const;
  bool is_patience_exhausted() const { return patience_ > 0 && stale_evaluations_ >= patience_; }
  /// Returns the step of the last improvement, as defined for training.patience.
  std::int64_t improved_at() const { return improved_at_; }
  void save(State& state) const;
  /// Loads the state. Accepts a state without validation losses.
  void load(const State& state);

 private:
  std::int64_t keep_, patience_;
  double min_improvement_;
  std::vector<BestCheckpoint> best_;
  std::vector<std::pair<std::int64_t, std::int64_t>>
      return_point_bests_;  // (return point, step of a checkpoint that was among the best there)
  double improved_loss_ = std::numeric_limits<double>::infinity();
  std::int64_t improved_at_ = 0,
               stale_evaluations_ = 0;  // number of evaluations since the last improvement
  bool evaluation_due_ = false;
};

struct TrainerProgress {
  explicit TrainerProgress(LossJudge of_config) : judge(std::move(of_config)) {}
  LossJudge judge;
  std::int64_t steps_done = 0;
  Phase last_phase = Phase::kWarmup;
  RollBacks roll_backs{};
  std::vector<std::int64_t> return_points{};  // steps of checkpoints for rollbacks, oldest first
  std::int64_t last_return_point() const {
    return return_points.empty() ? 0 : return_points.back();
  }
  bool rollback_pending = false;  // the last step requires roll_back; not saved
  /// Returns whether updates are pending, in which case the weights are predicted.
  bool has_delayed_updates(const PhaseConfig& phases) const {
    return phases.traits().delays_updates && last_phase == Phase::kPredict;
  }
};

enum class CheckpointUse {
  kResume,             // saved because the run stops; a rollback ignores it
  kResumeAndRollBack,  // due according to the settings; a rollback may use it
};

/// Trains any LossModel in phases, with one call of step() per batch.
///
///   HybridTrainer trainer(model, HybridTrainerConfig::builder().steps(500).build(), stream);
///   while (trainer.steps_done() < 500) trainer.step(next_batch());
///
/// The caller makes the model and the batches, applies `model`, `data.shuffle` and
/// `training.evaluate_every_steps`, and makes batches of the configured shape.
class HybridTrainer {
 public:
  /// `model` and `stream` must outlive the trainer. Predict offloads to `host_pool`; null makes a
  /// pool with make_host_pool. Throws ConfigError, OutOfMemory.
  ///
  /// If `ranks` is not null, several ranks train together; it must outlive the trainer. Each gets
  /// the batch of the whole step and computes a part of its micro-batches. Weights are
  /// bit-identical for any number of ranks. All calls except getters are then collective, and a
  /// rank whose call throws must abort the others. Throws ConfigError if there are more ranks than
  /// micro-batches, or if ranks are not supported.
  HybridTrainer(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                std::shared_ptr<MemoryPool> host_pool = nullptr, Communicator* ranks = nullptr);
  /// Uses the memory locations `places`, which callers may share. If the model's weights were
  /// created in host memory or a file of `places`, the device never stores the whole model.
  HybridTrainer(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                std::shared_ptr<MemoryPlaces> places, Communicator* ranks = nullptr);
  ~HybridTrainer();
  HybridTrainer(HybridTrainer&&) = delete;

  /// Runs one step on one batch, which may be in host memory. If it sets
  /// progress().rollback_pending, call roll_back. Throws DivergedStep if loss or gradient is not
  /// finite in too many steps, or if an action ends the run. Blocks.
  StepRecord step(const Batch& batch);
  /// Sets whether to delay the publishing of sharded weights (DistributedConfig::zero 1 and 2), so
  /// that other messages between two steps need not wait. While held, weights are not sent until
  /// the next step or a call with false. Until then, either all ranks or none may use the model.
  /// Collective.
  void defer_publishing(bool holds);
  std::int64_t steps_done() const { return progress_.steps_done; }
  /// Returns the phase machine, which has the phase of the next step and totals over all steps.
  PhaseMachine& machine() { return machine_; }
  const PhaseMachine& machine() const { return machine_; }
  /// Returns the trainer's progress: rollbacks and results of evaluations. If judge.is_on(), call
  /// drain() before each evaluation.
  TrainerProgress& progress() { return progress_; }
  const TrainerProgress& progress() const { return progress_; }
  /// Returns the precision of each phase, with every "auto" resolved.
  const PhasePrecision& precision() const;
  /// Adds statistics of predictions, rollbacks, offloading and pending updates.
  void add_use_to(RunSummary& summary) const;
  /// Calls `callback` while the model has exact weights. Call it between steps.
  void with_exact(const std::function<void()>& callback);
  /// Calls `callback` while the model has the mean of the weights (training.average_weights), if
  /// the run keeps one. Call it between two steps, when no prediction is undecided.
  void with_average(const std::function<void()>& callback);
  /// Sets the listeners: `on_event` for phase changes, decisions and warnings, `on_warning` only
  /// for warnings.
  void listen(std::function<void(const std::string&)> on_event,
              std::function<void(const std::string&)> on_warning = {});

  /// Sends the vote `requests_stop` with this rank's next message. Returns whether a vote to stop
  /// has arrived from any rank; the result is equal on all ranks. If no message is pending, does
  /// not vote and returns nullopt.
  std::optional<bool> vote_to_stop(bool requests_stop);
  /// Waits for pending messages in Predict, so that all ranks have the same state; `save` calls it.
  /// May set progress().rollback_pending or throw Diverged, with the weights of the last good
  /// update. Call it at the same steps on all ranks.
  void drain();
  /// Saves a checkpoint below `folder` (src/files/checkpoint.h) and returns its path. roll_back
  /// uses only kResumeAndRollBack checkpoints. If the run may roll back, keeps the newest
  /// checkpoint.keep checkpoints of this use and of any use. Each rank writes its shards and its
  /// share of the replicated state. Throws IoError on all ranks if one rank fails; training can
  /// continue.
  std::string save(const std::string& folder,
                   CheckpointUse use = CheckpointUse::kResumeAndRollBack);
  /// Resumes from the newest intact checkpoint below `folder`, bit for bit. Returns false if there
  /// is none. Reports damaged ones and changed settings. Throws ConfigError if the state depends on
  /// a changed setting, DataError if all are damaged.
  bool resume(const std::string& folder);
  /// Rolls back after the step `failed` to the newest intact kResumeAndRollBack checkpoint below
  /// `folder`. If the run failed again without passing the previous failure, rolls back to the
  /// checkpoint before that one. Multiplies the learning rate by divergence.roll_back_rate. The
  /// caller must repeat the batches after the checkpoint's step. The next record reports the
  /// rollback, and later checkpoints include it. Throws Diverged if there is no checkpoint, or
  /// after max_roll_backs.
  void roll_back(const std::string& folder, const StepRecord& failed);

 private:
  StepRecord record_of(const PhaseOutcome& outcome, const Batch& batch);
  const HybridTrainerConfig config_;
  std::unique_ptr<TrainerMessages> messages_;
  TrainerProgress progress_;
  const Stream& stream_;
  std::unique_ptr<BatchUpload> upload_;
  std::unique_ptr<ModelTrainable> trainable_;
  PhaseMachine machine_;
  std::unique_ptr<StepRecorder> recorder_;
  std::unique_ptr<TrainerCheckpoints> checkpoints_;
  bool defers_publishing_ = false;
  bool rolled_back_ = false;  // whether a rollback has happened since the last record
};

}  // namespace hybrid_trainer
