#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/config/phase_precision.h"
#include "hybrid_trainer/data/batch_order.h"
#include "hybrid_trainer/memory/offload_strategy.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/observability/step_record.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"
#include "hybrid_trainer/phases/phase_machine.h"

namespace hybrid_trainer {

class BatchUpload;
class Communicator;
class MemoryPlaces;
class ModelTrainable;
class StepRecorder;
class Stretches;
class TrainerCheckpoints;
class TrainerMessages;
struct TrainerProgress;

/// The step that a run ends with; `record` is of it, and its update was not made.
class DivergedStep : public Diverged {
 public:
  DivergedStep(const std::string& message, StepRecord of)
      : Diverged(message), record(std::move(of)) {}
  StepRecord record;
};

/// Counts of roll backs to checkpoints.
struct RollBacks {
  std::int64_t count = 0, steps = 0;  // steps: given up in all
  std::int64_t target = 0;            // step that the last one went back to
  std::int64_t failed = 0;            // the furthest step that failed
  double rate_factor = 1;             // on the schedule's learning rate
};

/// Purpose of a checkpoint.
enum class CheckpointUse {
  kResume,             // because the run stops, or is about to: it may be of any step
  kResumeAndRollBack,  // due by the settings alone, so that a run that never stopped has it, too
};

/// Trains any LossModel in phases: one call of step() per batch.
///
///   HybridTrainer trainer(model, HybridTrainerConfig::builder().steps(500).build(), stream);
///   while (trainer.steps_done() < 500) trainer.step(next_batch());
///
/// The groups `model`, `data.shuffle` and `training.evaluate_every_steps` of the config are for
/// whoever builds the model and feeds the batches; a batch has data.batch_size ·
/// gradient_accumulation.micro_batches examples or, where the config has stretches, batch_shape().
class HybridTrainer {
 public:
  /// `model` and `stream` must outlive the trainer. What Predict offloads goes to `host_pool`, by
  /// default make_host_pool of the stream's device. Throws ConfigError, OutOfMemory.
  ///
  /// With `ranks`, which must outlive it, it trains together with the other ranks, which do the
  /// same: each is given the whole step's batch and computes forward and backward of its own
  /// micro-batches. Gradients are summed in an order that depends on their number alone, so that
  /// weights have the same bits on any number of ranks. DistributedConfig::zero says what a rank has
  /// a part of; all calls but readers are collectives then. Where one rank's call throws, it has to
  /// abort the others. Throws ConfigError where there are more ranks than micro-batches, or the
  /// configuration wants what ranks cannot do.
  HybridTrainer(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                std::shared_ptr<MemoryPool> host_pool = nullptr, Communicator* ranks = nullptr);
  /// The same with places that others use too: a model whose weights were made in one of them is
  /// never on the device as a whole.
  HybridTrainer(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                std::shared_ptr<MemoryPlaces> places, Communicator* ranks = nullptr);
  ~HybridTrainer();
  HybridTrainer(HybridTrainer&&) = delete;

  /// One step of the current phase on one batch, which may be in host memory. Blocks. Where
  /// must_go_back() then, its update was not made and roll_back is due. Throws
  /// DivergedStep if loss or gradients remain non-finite, or where the config wants the run to end.
  StepRecord step(const Batch& batch);
  /// Where ranks have parts of weights (DistributedConfig::zero 1 and 2), a step ends with its changes
  /// under way to all of them. Held, they wait until the next step begins, or this is called with
  /// false, so that what ranks tell each other between two steps need not wait for them; until then
  /// the model is used by all ranks at once or by none. A collective.
  void hold_weights(bool holds);
  std::int64_t steps_done() const;
  /// Of the next step's batch, by data.batch_size, accumulation and stretches.
  BatchShape batch_shape() const;
  /// The phase of the next step.
  Phase phase() const { return machine_.phase(); }
  const PhaseStatistics& statistics() const { return machine_.statistics(); }
  /// See PhaseMachine.
  bool is_healthy() const { return machine_.is_healthy(); }
  const RollBacks& roll_backs() const;
  /// Whether the last step asked for roll_back.
  bool must_go_back() const { return must_go_back_; }
  /// Of the optimizer state in Predict.
  const OffloadUse& offload_use() const;
  /// Whether updates are under way, so that the weights are predicted ones.
  bool has_late_updates() const;
  /// Of late updates, since the trainer was made.
  SpeculationUse speculation_use() const;
  DType dtype_of(Phase phase) const { return precision().of(phase).dtype; }
  const PhasePrecision& precision() const;
  /// Steps since the weights were last decided on: 0 except in Predict, whose weights should not be
  /// used. The last of training.steps always decides.
  std::int64_t undecided_steps() const { return machine_.undecided_steps(); }
  /// See PhaseMachine.
  void give_up_predicting() { machine_.give_up_predicting(); }
  /// Calls `read_out` while the model's masters are their mean (training.average_weights), if there
  /// is one; between two steps, where nothing is undecided.
  void with_average(const std::function<void()>& read_out);
  /// Calls `use` while the exact weights are in place of those that a rank predicts where gradients
  /// of other ranks come late, which are other ones on each; between two steps.
  void with_exact_weights(const std::function<void()>& use);
  /// Where those are under way: whether any rank had called this with true by the step they are of,
  /// the same on all ranks, which each have to call it after each step. Else absent.
  std::optional<bool> late_vote_to_stop(bool asks);
  /// Whether validation losses decide about anything (checkpoint.keep_best, training.patience): then
  /// settle() comes before each evaluation.
  bool judges() const;
  /// Whether to evaluate after this step, where an evaluation is `due`. Of a trainer that judges, a due
  /// one waits until no update is pending.
  bool evaluates(bool due);
  /// Takes the validation loss of the weights as they are. True where their checkpoint is to stay, so
  /// that save is due; where that fails, forget_best takes the step back.
  bool judge(double validation_loss);
  void forget_best();
  /// The checkpoint with the lowest validation loss (checkpoint.keep_best); none where there is none.
  std::optional<BestCheckpoint> best() const;
  /// Whether training.patience says that the run ends.
  bool is_out_of_patience() const;
  /// Step of the last evaluation that counted as an improvement for training.patience.
  std::int64_t improved_at() const;
  /// Called with one line for each phase change, decision and warning.
  void on_event(std::function<void(const std::string&)> listener);
  /// Called with one line for each mishap alone: what was asked for and could not be done. It is
  /// also in the `event` of the next record.
  void on_mishap(std::function<void(const std::string&)> listener);

  /// What is under way between ranks in Predict arrives, so that nothing is of one rank alone, as a
  /// checkpoint wants it; a save does it first. Predict then begins anew. Throws Diverged where that
  /// ends the run, with the weights of the last good update; it may ask to go back, too. At the same
  /// steps on all ranks.
  void settle();
  /// The step of the last checkpoint to go back to; 0 if there is none.
  std::int64_t last_return_point() const;
  /// Commits a checkpoint below `folder` (see src/files/checkpoint.h); returns its path. roll_back knows only
  /// those that were saved for it, so that it does not depend on when a run was stopped; where a run
  /// may go back, the newest checkpoint.keep of them stay beside the newest of all. Old ones that
  /// could not be removed are a mishap. Throws IoError; training may go on. Of several ranks each
  /// writes what it has a part of, and its share of what all have; where one cannot, all throw.
  std::string save(const std::string& folder,
                   CheckpointUse use = CheckpointUse::kResumeAndRollBack);
  /// Resumes from the newest intact checkpoint below `folder`, bit for bit; false if there is none.
  /// The listener is told what was damaged, and each setting that differs from the checkpoint's.
  /// Throws ConfigError if a setting that the saved state depends on differs, DataError if all
  /// checkpoints are damaged.
  bool resume(const std::string& folder);
  /// Where must_go_back(), because of the step `failed`: goes back to the newest intact checkpoint
  /// below `folder` that was saved for it, or the one before that where the run did not come further
  /// than the last time, with half the learning rate from there on, all of which the next record
  /// tells. The batches after that step are due again. What is saved later holds
  /// the rate and the count; a run that is resumed from before makes the same steps and goes back
  /// again. Throws Diverged after max_roll_backs, or where there is no checkpoint.
  void roll_back(const std::string& folder, const StepRecord& failed);

 private:
  StepRecord record_of(const PhaseOutcome& outcome, const Batch& batch);
  const HybridTrainerConfig config_;
  std::unique_ptr<TrainerMessages> messages_;
  std::unique_ptr<TrainerProgress> progress_;
  std::unique_ptr<Stretches> stretches_;
  const Stream& stream_;
  std::unique_ptr<BatchUpload> upload_;
  std::unique_ptr<ModelTrainable> trainable_;
  PhaseMachine machine_;
  std::unique_ptr<StepRecorder> recorder_;
  std::unique_ptr<TrainerCheckpoints> checkpoints_;
  bool must_go_back_ = false;
  bool holds_weights_ = false;
  bool went_back_ = false;  // since the last record
};

}  // namespace hybrid_trainer
