#pragma once

#include <cstdint>
#include <vector>

#include "hybrid_trainer/optim/learning_rate_schedule.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "src/config/stretches.h"

namespace hybrid_trainer {

/// The learning rate of each step: the schedule's, times what stretches, the learning rate finder and
/// going back to a checkpoint make of it.
class LearningRates {
 public:
  /// `stretches` must outlive it.
  LearningRates(const HybridTrainerConfig& config, const Stretches& stretches);
  /// Steps done before the one to come.
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  std::int64_t steps_done() const { return steps_done_; }
  /// Factors on the schedule's rates, 1 at first: what the finder found, and after going back.
  void set_found_factor(double factor) { found_factor_ = factor; }
  void set_rate_factor(double factor) { rate_factor_ = factor; }

  /// Of the step to come.
  double rate() const { return rate_at(steps_done_); }
  /// Of as many steps as updates are delayed, from the `first` after the one to come on.
  std::vector<float> rates_from(std::int64_t first) const;
  /// Where the run stands, for optimizers that depend on it.
  RunProgress progress() const { return {steps_done_ + 1, steps_, scheduled(steps_done_ + 1)}; }

 private:
  double scheduled(std::int64_t steps_done) const;
  double rate_at(std::int64_t steps_done) const;

  const ScheduleConfig schedule_;
  const double peak_;
  const std::int64_t steps_, lag_;
  const Stretches& stretches_;
  std::int64_t steps_done_ = 0;
  double found_factor_ = 1, rate_factor_ = 1;
};

}  // namespace hybrid_trainer
