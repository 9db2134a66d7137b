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

/// Says when a run's checkpoints are due: after so many steps, epochs or minutes. No bit of the run
/// depends on the clock: where the steps that are saved change bits, minutes do not count.
class CheckpointSchedule {
 public:
  CheckpointSchedule(const HybridTrainerConfig& config, const ShuffledBatches& batches);
  /// Whether this process has trained for checkpoint.every_minutes since the last checkpoint.
  bool is_due_by_time() const;
  /// Whether checkpoint.every_steps or every_epochs ask for a checkpoint by step `step`, where
  /// `last` is the step of the last checkpoint that they asked for, 0 if there was none.
  bool is_due_by_steps(std::int64_t step, std::int64_t last) const;
  /// There is a checkpoint now, or the run went back to one.
  void saved() { saved_at_ = Clock::now(); }

 private:
  const CheckpointConfig config_;
  const bool counts_minutes_;
  const ShuffledBatches& batches_;
  Clock::time_point saved_at_ = Clock::now();
};

/// Saves a run's checkpoints into one folder. Where one cannot be saved, earlier ones stay.
class RunSaving {
 public:
  RunSaving(std::string folder, const TrainingRunSettings& settings);
  /// Saves the current step; false if that failed, which is told once. Of several ranks all save or
  /// none. A collective.
  bool save(HybridTrainer& trainer, RunRecords& records,
            CheckpointUse use = CheckpointUse::kResume);
  /// The same. Throws IoError, which names what a resumed run would continue from.
  void save_at_the_end(HybridTrainer& trainer, RunRecords& records);
  /// Saves what the last good update left, for an error that ends the run. A collective.
  void save_and_tell(HybridTrainer& trainer, RunRecords& records);
  /// How to go on from what is saved, in words.
  const std::string& way_on() const { return way_on_; }
  /// Of a run that was asked to stop: what is there, and how to go on.
  std::string stopped_text(std::int64_t steps_done, std::int64_t steps) const;

 private:
  std::string folder_, way_on_, way_to_start_;
  std::string problem_;  // of the last checkpoint, if it failed
};

/// The steps of a run from where its trainer is to the last: with evaluations, checkpoints, and going
/// back to them. Of several ranks each has one, and all make the same calls.
class TrainingLoop {
 public:
  /// What belongs to the run, and outlives it.
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
    RunMoment& now;
  };
  explicit TrainingLoop(const Run& run);
  /// Steps until config.training.steps are done or a stop is asked for, and saves. `saves_first`:
  /// what the run begins with, if it may go back. Throws as run_training.
  RunEnd step_to_end(bool saves_first);

 private:
  /// Losses of an evaluation.
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
  StepWish agree();
  void settle();
  void go_back(const StepRecord& failed);
  void compare_weights();
  void save_if_due(const StepRecord& record, bool by_steps, bool is_due);
  std::string patience_text() const;
  RunEnd end();

  Run run_;
  CheckpointSchedule schedule_;
  std::int64_t saved_at_;
  std::optional<double> initial_validation_loss_;
  Clock::time_point recorded_;  // when the last record was made
};

}  // namespace hybrid_trainer
