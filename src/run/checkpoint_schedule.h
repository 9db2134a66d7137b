#pragma once

#include <cstdint>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/data/batch_loader.h"

namespace hybrid_trainer {

/// Says when a run's checkpoints are due: after so many steps, epochs or minutes. No bit of the run
/// depends on the clock: where the steps that are saved change bits, minutes do not count.
class CheckpointSchedule {
 public:
  CheckpointSchedule(const HybridTrainerConfig& config, const BatchSource& batches);
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
  const BatchSource& batches_;
  Clock::time_point saved_at_ = Clock::now();
};

}  // namespace hybrid_trainer
