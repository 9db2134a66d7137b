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

/// Compares the validation losses of a run: says which checkpoints stay because theirs are the lowest
/// (checkpoint.keep_best), and when the run has waited long enough for a lower one
/// (training.patience). Each checkpoint holds it, so that a resumed run goes on with it.
class LossJudge {
 public:
  explicit LossJudge(const HybridTrainerConfig& config);
  bool is_on() const { return keep_ > 0 || patience_ > 0; }
  /// Whether to evaluate after a step, where an evaluation is `due`. While weights are predicted, a
  /// due one is owed and comes after the first step whose weights are not.
  bool evaluates(bool due, bool are_predicted);
  /// Takes the loss after `step`. True where its checkpoint has to be saved, and stays.
  bool judge(std::int64_t step, double loss);
  /// Checkpoints with the lowest losses, lowest first; of equal losses the earlier.
  const std::vector<BestCheckpoint>& best() const { return best_; }
  /// The first of them; none where there is none.
  std::optional<BestCheckpoint> lowest() const {
    return best_.empty() ? std::nullopt : std::optional(best_.front());
  }
  /// Forgets a step that is not saved.
  void forget(std::int64_t step);
  /// Forgets checkpoints of other steps than these. Returns whether there were any.
  bool forget_all_but(const std::vector<std::int64_t>& steps);
  /// Remembers the best of now for the newest of the steps that the run may go back to.
  void remember(const std::vector<std::int64_t>& return_points);
  /// Steps whose checkpoints stay: the best, and those that were the best at return points.
  std::vector<std::int64_t> kept() const;
  bool is_out_of_patience() const { return patience_ > 0 && waited_ >= patience_; }
  /// Step of the last improvement for training.patience.
  std::int64_t improved_at() const { return improved_at_; }
  void save(State& state) const;
  /// A state without judged losses is one in which there were none yet.
  void load(const State& state);

 private:
  std::int64_t keep_, patience_;
  double min_improvement_;
  std::vector<BestCheckpoint> best_;
  std::vector<std::pair<std::int64_t, std::int64_t>>
      of_return_points_;  // point, step of a best one
  double improved_loss_ = std::numeric_limits<double>::infinity();
  std::int64_t improved_at_ = 0, waited_ = 0;  // evaluations since then
  bool owed_ = false;
};

/// How far a trainer has come.
struct TrainerProgress {
  explicit TrainerProgress(LossJudge of_config) : judge(std::move(of_config)) {}
  LossJudge judge;
  std::int64_t steps_done = 0;
  Phase last_phase = Phase::kWarmup;
  RollBacks roll_backs{};
  std::vector<std::int64_t> return_points{};  // checkpoints to go back to, by step, oldest first
  /// The newest of them; 0 where there is none.
  std::int64_t last_return_point() const {
    return return_points.empty() ? 0 : return_points.back();
  }
  /// Whether the last step asked for HybridTrainer::roll_back. Not saved.
  bool must_go_back = false;
  /// Whether updates are pending, so that the weights are predicted ones.
  bool has_delayed_updates(const PhaseConfig& phases) const {
    return phases.traits().delays_updates && last_phase == Phase::kPredict;
  }
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
  /// progress().must_go_back then, its update was not made and roll_back is due. Throws
  /// DivergedStep if loss or gradients remain non-finite, or where the config wants the run to end.
  StepRecord step(const Batch& batch);
  /// Where ranks have parts of weights (DistributedConfig::zero 1 and 2), a step ends with its changes
  /// under way to all of them. Held, they wait until the next step begins, or this is called with
  /// false, so that what ranks tell each other between two steps need not wait for them; until then
  /// the model is used by all ranks at once or by none. A collective.
  void hold_weights(bool holds);
  std::int64_t steps_done() const { return progress_.steps_done; }
  /// Of the next step's batch, by data.batch_size, accumulation and stretches.
  BatchShape batch_shape() const;
  /// The phase of the next step, and sums over all steps.
  PhaseMachine& machine() { return machine_; }
  const PhaseMachine& machine() const { return machine_; }
  /// Roll backs, and what validation losses decide about. If judge.is_on(), settle() comes before each
  /// evaluation.
  TrainerProgress& progress() { return progress_; }
  const TrainerProgress& progress() const { return progress_; }
  /// The precision of each phase, with every "auto" decided.
  const PhasePrecision& precision() const;
  /// Adds to a run's summary what only the trainer counts: predictions, roll backs, and how offload
  /// and pending updates have kept steps waiting.
  void add_use_to(RunSummary& summary) const;
  /// Calls `read_out` while the exact weights are in place of predicted ones, which may be others on
  /// each rank; between two steps.
  void with_exact(const std::function<void()>& read_out);
  /// Calls `read_out` while the model's masters are their mean (training.average_weights), if there
  /// is one; between two steps, where nothing is undecided.
  void with_average(const std::function<void()>& read_out);
  /// From now on, `on_event` is called with one line for each phase change, decision and warning;
  /// `on_warning` with each warning alone, which is also in the `event` of the next record.
  void listen(std::function<void(const std::string&)> on_event,
              std::function<void(const std::string&)> on_warning = {});

  /// Where ranks have something pending, so that they do not wait to agree: whether any had called
  /// this with true by the step that it is of, the same on all ranks. Else absent.
  std::optional<bool> vote_to_stop(bool asks);
  /// What is under way between ranks in Predict arrives, so that nothing is of one rank alone, as a
  /// checkpoint wants it; a save does it first. Predict then begins anew. Throws Diverged where that
  /// ends the run, with the weights of the last good update; it may ask to go back, too. At the same
  /// steps on all ranks.
  void settle();
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
  /// If progress().must_go_back, because of the step `failed`: goes back to the newest intact checkpoint
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
  TrainerProgress progress_;
  const Stream& stream_;
  std::unique_ptr<BatchUpload> upload_;
  std::unique_ptr<ModelTrainable> trainable_;
  PhaseMachine machine_;
  std::unique_ptr<StepRecorder> recorder_;
  std::unique_ptr<TrainerCheckpoints> checkpoints_;
  bool holds_weights_ = false;
  bool went_back_ = false;  // since the last record
};

}  // namespace hybrid_trainer
