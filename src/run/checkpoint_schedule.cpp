#include "src/run/checkpoint_schedule.h"

#include <algorithm>

namespace hybrid_trainer {
namespace {

/// Whether there is a multiple of `every` above `before` and up to `count`.
bool reaches_multiple(std::int64_t before, std::int64_t count, std::int64_t every) {
  return every > 0 && count / every > before / every;
}

/// Epochs that are shorter than this many steps are not each worth a checkpoint.
constexpr std::int64_t kFewSteps = 10;

CheckpointConfig with_fewer_epochs(CheckpointConfig config, const BatchSource& batches) {
  if (config.every_epochs > 0)
    config.every_epochs = std::max(config.every_epochs, batches.epochs_in(kFewSteps));
  return config;
}

}  // namespace

CheckpointSchedule::CheckpointSchedule(const HybridTrainerConfig& config,
                                       const BatchSource& batches)
    : config_(with_fewer_epochs(config.checkpoint, batches)),
      counts_minutes_(config.saves_by_time()),
      batches_(batches) {}

bool CheckpointSchedule::is_due_by_time() const {
  return counts_minutes_ && seconds_since(saved_at_) >= 60 * config_.every_minutes;
}

bool CheckpointSchedule::is_due_by_steps(std::int64_t step, std::int64_t last) const {
  return reaches_multiple(last, step, config_.every_steps) ||
         reaches_multiple(batches_.epochs_in(last), batches_.epochs_in(step), config_.every_epochs);
}

}  // namespace hybrid_trainer
