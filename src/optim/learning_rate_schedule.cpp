#include "hybrid_trainer/optim/learning_rate_schedule.h"

#include <numbers>

namespace hybrid_trainer {

namespace {

/// Returns the fraction of the way from `begin` to `end` at `step`, in [0, 1].
double progress(double step, double begin, double end) {
  if (step >= end) return 1;
  return step <= begin ? 0 : (step - begin) / (end - begin);
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names{"cosine", "wsd", "constant"};
  return names;
}

double batch_rate_factor(double share) { return std::sqrt(share); }

double learning_rate(const ScheduleConfig& config, double peak, std::int64_t step,
                     std::int64_t total_steps) {
  if (step < config.warmup_steps)
    return peak * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  const double now = static_cast<double>(step);
  const double total = static_cast<double>(total_steps);
  double height = 1;  // 1 at the peak, 0 at the end
  if (config.name == "cosine") {
    const double p = progress(now, static_cast<double>(config.warmup_steps), total);
    height = 0.5 * (1 + std::cos(std::numbers::pi * p));
  } else if (config.name == "wsd") {
    height = 1 - progress(now, total * (1 - config.decay_share), total);
  } else if (config.name != "constant") {
    throw ConfigError({choice_problem("schedule.name", config.name, schedule_names())});
  }
  return peak * (config.final_fraction + (1 - config.final_fraction) * height);
}

}  // namespace hybrid_trainer
