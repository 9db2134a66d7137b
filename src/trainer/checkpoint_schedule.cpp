#include "src/trainer/checkpoint_schedule.h"

namespace hybrid_trainer {
namespace {

/// Whether there is a multiple of `every` above `before` and up to `count`.
bool reaches_multiple(std::int64_t before, std::int64_t count, std::int64_t every) {
  return every > 0 && count / every > before / every;
}

}  // namespace

CheckpointSchedule::CheckpointSchedule(const HybridTrainerConfig& config,
                                       const BatchSource& batches)
    : config_(config.checkpoint), counts_minutes_(config.saves_by_time()), batches_(batches) {}

bool CheckpointSchedule::is_due_by_time() const {
  return counts_minutes_ && seconds_since(saved_at_) >= 60 * config_.every_minutes;
}

void CheckpointSchedule::add(std::int64_t step, bool by_time) {
  is_due_ |= by_time || reaches_multiple(step - 1, step, config_.every_steps) ||
             reaches_multiple(batches_.epochs_in(step - 1), batches_.epochs_in(step),
                              config_.every_epochs);
}

void CheckpointSchedule::saved() {
  is_due_ = false;
  saved_at_ = Clock::now();
}

}  // namespace hybrid_trainer
