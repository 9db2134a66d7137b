#pragma once

#include <limits>

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

/// Thrown by a step that ends the run. `record` describes the step, which made no update.
class DivergedStep : public Diverged {
 public:
  DivergedStep(const std::string& message, StepRecord of)
      : Diverged(message), record(std::move(of)) {}
  StepRecord record;
};

/// Statistics of rollbacks to checkpoints.
struct RollBacks {
  std::int64_t count = 0, steps = 0;  // steps: total number of steps given up
  std::int64_t target = 0;            // step of the last rollback's checkpoint
  std::int64_t failed = 0;            // furthest step that failed
  double rate_factor = 1;             // factor on the schedule's learning rate
};

/// Compares the validation losses of a run. Selects the checkpoints with the lowest losses, which
/// are kept (checkpoint.keep_best), and stops the run early (training.patience). Each checkpoint
/// includes its state, so a resumed run continues with it.
class LossJudge {
 public:
  explicit LossJudge(const HybridTrainerConfig& config);
  bool is_on() const { return keep_ > 0 || patience_ > 0; }
  /// Returns whether to evaluate after a step. An evaluation that is `due` while weights are
  /// predicted is postponed to the first step with exact weights.
  bool evaluates(bool due, bool are_predicted);
  /// Records a validation loss after `step`. Returns whether to save and keep its checkpoint.
  bool judge(std::int64_t step, double loss);
  /// Returns the checkpoints with the lowest losses, sorted by loss, then by step.
  const std::vector<BestCheckpoint>& best() const { return best_; }
  /// Returns the checkpoint with the lowest loss, if any.
  std::optional<BestCheckpoint> lowest() const {
    return best_.empty() ? std::nullopt : std::optional(best_.front());
  }
  /// Forgets a step whose checkpoint could not be saved.
  void forget(std::int64_t step);
  /// Forgets checkpoints of steps outside `steps`. Returns whether one of the best was forgotten.
  bool keep_only(const std::vector<std::int64_t>& steps);
  /// Stores the current best checkpoints together with the newest of `return_points`, the steps
  /// that a rollback may return to. Forgets entries of steps that are no longer return points.
  void remember(const std::vector<std::int64_t>& return_points);
  /// Returns the steps of checkpoints to keep: the best now, and the best at each return point.
  std::vector<std::int64_t> kept() const;
  bool is_patience_exhausted() const { return patience_ > 0 && stale_evaluations_ >= patience_; }
  /// Returns the step of the last improvement for training.patience.
  std::int64_t improved_at() const { return improved_at_; }
  void save(State& state) const;
  /// Accepts a state without judged losses.
  void load(const State& state);

 private:
  std::int64_t keep_, patience_;
  double min_improvement_;
  std::vector<BestCheckpoint> best_;
  std::vector<std::pair<std::int64_t, std::int64_t>>
      return_point_bests_;  // return point, step of a checkpoint that was among the best
  double improved_loss_ = std::numeric_limits<double>::infinity();
  std::int64_t improved_at_ = 0,
               stale_evaluations_ = 0;  // number of evaluations since the last improvement
  bool evaluation_due_ = false;
};

/// Progress of a trainer.
struct TrainerProgress {
  explicit TrainerProgress(LossJudge of_config) : judge(std::move(of_config)) {}
  LossJudge judge;
  std::int64_t steps_done = 0;
  Phase last_phase = Phase::kWarmup;
  RollBacks roll_backs{};
  std::vector<std::int64_t> return_points{};  // steps of checkpoints to return to, oldest first
  /// Returns the newest of return_points, or 0.
  std::int64_t last_return_point() const {
    return return_points.empty() ? 0 : return_points.back();
  }
  /// True if the last step requires HybridTrainer::roll_back. Not saved.
  bool rollback_pending = false;
  /// Returns whether updates are pending, in which case the weights are predicted.
  bool has_delayed_updates(const PhaseConfig& phases) const {
    return phases.traits().delays_updates && last_phase == Phase::kPredict;
  }
};

/// Purpose of a checkpoint.
enum class CheckpointUse {
  kResume,             // saved at any step, because the run stops or is about to stop
  kResumeAndRollBack,  // due by the settings, so an uninterrupted run saves it too
};

/// Trains any LossModel in phases, with one call of step() per batch.
///
///   HybridTrainer trainer(model, HybridTrainerConfig::builder().steps(500).build(), stream);
///   while (trainer.steps_done() < 500) trainer.step(next_batch());
///
/// The caller, which builds the model and provides the batches, applies the config's groups
/// `model`, `data.shuffle` and `training.evaluate_every_steps`. A batch has data.batch_size ·
/// gradient_accumulation.micro_batches examples or, if the config has stages, batch_shape().
class HybridTrainer {
 public:
  /// `model` and `stream` must outlive the trainer. Predict offloads to `host_pool`, by default
  /// make_host_pool of the stream's device. Throws ConfigError, OutOfMemory.
  ///
  /// With `ranks`, which must outlive it, several ranks train together. Each rank gets the batch of
  /// the whole step and computes its own micro-batches. The order in which gradients are summed
  /// depends only on the number of micro-batches, so weights are bit-identical for any number of
  /// ranks. DistributedConfig::zero selects sharding. All calls except getters are then collective,
  /// and a rank whose call throws must abort the others. Throws ConfigError if there are more ranks
  /// than micro-batches, or if the configuration does not support several ranks.
  HybridTrainer(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                std::shared_ptr<MemoryPool> host_pool = nullptr, Communicator* ranks = nullptr);
  /// Shares `places` with other users. If the model's weights were created in host memory or a file
  /// of `places`, the device never stores the whole model.
  HybridTrainer(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                std::shared_ptr<MemoryPlaces> places, Communicator* ranks = nullptr);
  ~HybridTrainer();
  HybridTrainer(HybridTrainer&&) = delete;

  /// Runs one step of the current phase on one batch, which may be in host memory. If
  /// progress().rollback_pending is set afterwards, no update was made; call roll_back. Throws
  /// DivergedStep if loss or gradients remain non-finite, or if the config ends the run. Blocks.
  StepRecord step(const Batch& batch);
  /// Delays publishing of sharded weights (DistributedConfig::zero 1 and 2). By default, a step
  /// ends by starting to send its weight changes to all ranks. With true, they are not sent until
  /// the next step or until a call with false, so that other messages between two steps need not
  /// wait for them. Until they are sent, either all ranks or none may use the model. Collective.
  void defer_publishing(bool holds);
  std::int64_t steps_done() const { return progress_.steps_done; }
  /// Returns the shape of the next step's batch, from data.batch_size, accumulation and stages.
  BatchShape batch_shape() const;
  /// Returns the phase machine: the phase of the next step, and totals over all steps.
  PhaseMachine& machine() { return machine_; }
  const PhaseMachine& machine() const { return machine_; }
  /// Returns the trainer's progress: rollbacks, and decisions based on validation losses. If
  /// judge.is_on(), call drain() before each evaluation.
  TrainerProgress& progress() { return progress_; }
  const TrainerProgress& progress() const { return progress_; }
  /// Returns the precision of each phase, with every "auto" resolved.
  const PhasePrecision& precision() const;
  /// Adds statistics of predictions, rollbacks, and waits for offload and pending updates.
  void add_use_to(RunSummary& summary) const;
  /// Calls `callback` with exact weights; predicted ones may differ by rank. Call it between steps.
  void with_exact(const std::function<void()>& callback);
  /// Calls `callback` while the model has the mean weights (training.average_weights), if there is
  /// one, in place of the weights. Call it between two steps without an undecided prediction.
  void with_average(const std::function<void()>& callback);
  /// Sets the listeners. `on_event` gets one line for each phase change, decision and warning.
  /// `on_warning` gets only warnings, which are also in the `event` of the next record.
  void listen(std::function<void(const std::string&)> on_event,
              std::function<void(const std::string&)> on_warning = {});

  /// Votes without waiting: `requests_stop` is sent with this rank's next message. Returns whether
  /// a vote to stop has arrived from any rank, the same on all ranks. If no messages between ranks
  /// are pending, does not vote and returns none.
  std::optional<bool> vote_to_stop(bool requests_stop);
  /// Waits for pending messages between ranks in Predict, so that all ranks have the same state, as
  /// a checkpoint requires; save calls it first. Predict then restarts. If the pending results end
  /// the run, throws Diverged with the weights of the last good update; they may also request a
  /// roll back. Call it at the same steps on all ranks.
  void drain();
  /// Commits a checkpoint below `folder` (src/files/checkpoint.h) and returns its path. roll_back
  /// uses only kResumeAndRollBack checkpoints, so it does not depend on when a run stopped. In a
  /// run that may roll back, the newest checkpoint.keep of these are kept, and the newest of all.
  /// Only warns if old ones cannot be removed. Throws IoError; training can continue. Each rank
  /// writes its shards and its share of the replicated state. If one rank fails, all throw.
  std::string save(const std::string& folder,
                   CheckpointUse use = CheckpointUse::kResumeAndRollBack);
  /// Resumes from the newest intact checkpoint below `folder`, bit for bit; returns false if there
  /// is none. Reports damaged checkpoints and different settings to the listener. Throws
  /// ConfigError if the saved state depends on such a setting, DataError if all are damaged.
  bool resume(const std::string& folder);
  /// Rolls back after the step `failed` has set progress().rollback_pending. Loads the newest
  /// intact kResumeAndRollBack checkpoint below `folder`. If the run has failed no later than
  /// before the previous rollback, loads the checkpoint before that rollback's, or the same one if
  /// there is none before. From then on the learning rate is multiplied by
  /// divergence.roll_back_rate. The caller must repeat the batches after the checkpoint's step. The
  /// next record reports the rollback. Later checkpoints include the rate and the number of
  /// rollbacks; a run resumed from an earlier one repeats the steps and the rollback. Throws
  /// Diverged if there is no checkpoint, or after max_roll_backs.
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
  bool rolled_back_ = false;  // whether the trainer has rolled back since the last record
};

}  // namespace hybrid_trainer
