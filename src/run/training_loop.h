#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/data/dataset.h"
#include "hybrid_trainer/run/training_run.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "src/core/clock.h"
#include "src/run/run_memory.h"
#include "src/run/run_ranks.h"
#include "src/run/run_records.h"

namespace hybrid_trainer {

/// Decides when checkpoints are due, by steps, epochs or minutes. The clock never changes the
/// results of a run: minutes are ignored if saving after different steps would change the bits of
/// the weights.
class CheckpointSchedule {
 public:
  CheckpointSchedule(const HybridTrainerConfig& config, const ShuffledBatches& batches);
  /// Returns whether checkpoint.every_minutes have passed since this process last saved.
  bool is_due_by_time() const;
  /// Returns whether checkpoint.every_steps or every_epochs require a checkpoint by step `step`.
  /// `last` is the step of the last checkpoint that they required, or 0 if there is none.
  bool is_due_by_steps(std::int64_t step, std::int64_t last) const;
  void saved() { saved_at_ = Clock::now(); }

 private:
  const CheckpointConfig config_;
  const bool counts_minutes_;
  const ShuffledBatches& batches_;
  Clock::time_point saved_at_ = Clock::now();
};

/// Saves a run's checkpoints to one folder. If saving fails, earlier checkpoints are kept.
class RunSaving {
 public:
  RunSaving(std::string folder, const TrainingRunSettings& settings);
  /// Saves on all ranks or on none. Reports a failure once and returns false. Collective.
  bool save(HybridTrainer& trainer, RunRecords& records,
            CheckpointUse use = CheckpointUse::kResume);
  /// Saves the last step. Throws IoError naming the checkpoint that a resumed run would start from.
  void save_final(HybridTrainer& trainer, RunRecords& records);
  /// Saves the result of the last good update before an error ends the run. Collective.
  void save_and_report(HybridTrainer& trainer, RunRecords& records);
  /// Returns a sentence that describes how to resume from the last checkpoint.
  const std::string& resume_hint() const { return resume_hint_; }
  /// Returns the message of an interrupted run: the saved step and how to resume.
  std::string stopped_text(std::int64_t steps_done, std::int64_t steps) const;

 private:
  std::string folder_, resume_hint_, restart_hint_;
  std::string problem_;  // error of the last checkpoint, if it failed
};

/// Runs the steps of a run from its trainer's current step to the last, with evaluations,
/// checkpoints and rollbacks. Each rank has a TrainingLoop, and all make the same calls.
class TrainingLoop {
 public:
  /// References to the run's objects, which must outlive the loop.
  struct Run {
    const TrainingRunSettings& settings;
    const HybridTrainerConfig& config;
    const Interruption& interruption;
    const Stream& stream;
    RunRanks& ranks;
    BatchLoader& loader;
    const OrderedBatches& evaluation;
    RunSaving& saving;
    std::string checkpoints;
    LossModel& model;
    HybridTrainer& trainer;
    RunRecords& records;
    RunPosition& now;
  };
  explicit TrainingLoop(const Run& run);
  /// Runs steps until config.training.steps are done, patience is exhausted or a stop is requested,
  /// then saves. `saves_first` is whether to save the initial state for rollbacks. Throws like
  /// run_training.
  RunEnd step_to_end(bool saves_first);

 private:
  struct Evaluated {
    EvaluationResult of_weights;
    std::optional<double> loss_of_average;
  };
  Evaluated evaluate();
  void evaluate(StepRecord& record);
  void evaluate_start();
  void add_overhead(StepRecord& record);
  bool evaluates_after(std::int64_t step, std::int64_t undecided_before);
  bool judge(const StepRecord& record);
  Batch next_batch();
  StepRecord step();
  StepVote agree();
  void drain();
  void roll_back(const StepRecord& failed);
  void compare_weights();
  void save_if_due(const StepRecord& record, bool by_steps, bool is_due);
  std::string patience_text() const;
  RunEnd end();

  Run run_;
  CheckpointSchedule schedule_;
  std::int64_t saved_at_;
  std::optional<double> initial_validation_loss_;
  Clock::time_point recorded_;  // time of the last record
};

}  // namespace hybrid_trainer
