#pragma once

#include <cstdint>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/data/batch_loader.h"
#include "hybrid_trainer/trainer/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// Says when a run's checkpoints are due: after so many steps, epochs or minutes. No bit of the run
/// depends on the clock: where the steps that are saved change bits, minutes do not count.
class CheckpointSchedule {
 public:
  CheckpointSchedule(const HybridTrainerConfig& config, const BatchSource& batches);
  /// Whether this process has trained for checkpoint.every_minutes since the last checkpoint.
  bool is_due_by_time() const;
  /// Once true, it stays so until saved().
  bool is_due() const { return is_due_; }
  /// Counts step `step`; `by_time` says that it is to be saved whatever its number.
  void add(std::int64_t step, bool by_time);
  /// There is a checkpoint now, or the run went back to one.
  void saved();

 private:
  const CheckpointConfig config_;
  const bool counts_minutes_;
  const BatchSource& batches_;
  Clock::time_point saved_at_ = Clock::now();
  bool is_due_ = false;
};

}  // namespace hybrid_trainer
