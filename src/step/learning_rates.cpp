#include "src/step/learning_rates.h"

namespace hybrid_trainer {

LearningRates::LearningRates(const HybridTrainerConfig& config, const Stretches& stretches)
    : schedule_(config.schedule),
      peak_(config.optimizer.learning_rate),
      steps_(config.training.steps),
      lag_(config.phases.delay()),
      stretches_(stretches) {}

double LearningRates::scheduled(std::int64_t steps_done) const {
  return learning_rate(schedule_, peak_, steps_done, steps_);
}

double LearningRates::rate_at(std::int64_t steps_done) const {
  return found_factor_ * rate_factor_ * stretches_.at(steps_done).rate_factor *
         scheduled(steps_done);
}

std::vector<float> LearningRates::rates_from(std::int64_t first) const {
  std::vector<float> rates;
  for (std::int64_t i = 0; i < lag_; ++i)
    rates.push_back(static_cast<float>(rate_at(steps_done_ + first + i)));
  return rates;
}

}  // namespace hybrid_trainer
