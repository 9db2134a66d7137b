#pragma once

#include <optional>
#include <string>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/data/batch_loader.h"
#include "hybrid_trainer/run/training_run.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "src/run/checkpoint_schedule.h"
#include "src/run/run_memory.h"
#include "src/run/run_ranks.h"
#include "src/run/run_records.h"
#include "src/run/run_saving.h"

namespace hybrid_trainer {

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
    EvaluationBatches& evaluation;
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
