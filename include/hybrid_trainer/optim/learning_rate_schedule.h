#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Accepted values of ScheduleConfig::name.
const std::vector<std::string>& schedule_names();

/// Learning-rate schedule of a run. JSON group `schedule`.
struct ScheduleConfig {
  std::string name = "cosine";
  std::int64_t warmup_steps = 100;
  double final_fraction = 0.05;
  double decay_share = 0.3;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"name", self.name,
                "Shape of the learning rate: cosine, wsd (warm-up, stable, linear decay) or "
                "constant. All start with a linear warm-up.",
                Range{}, schedule_names()});
    visit(Field{"warmup_steps", self.warmup_steps,
                "Steps over which the learning rate rises linearly from zero.", Range::at_least(0)}
              .essential(Question::kSpeed));
    visit(Field{"final_fraction", self.final_fraction,
                "Final learning rate of cosine and wsd, as a share of the highest one.",
                Range::between(0, 1)}
              .unless("schedule.name", {"constant"},
                      "schedule.name is constant, which does not decay"));
    visit(Field{"decay_share", self.decay_share,
                "Share of the run, at its end, over which wsd decays.", Range::between(0, 1)}
              .needs("schedule.name", {"wsd"}));
  }
};

/// Returns the rate factor for `share` of the usual tokens: √share (Malladi et al. 2022, for Adam).
double batch_rate_factor(double share);

/// Returns the learning rate after `step` of `total_steps`; peak·(s + 1)/warmup_steps in step s of
/// the warm-up. Then, with f = final_fraction:
///   cosine    peak·(f + (1 − f)·(1 + cos(π·p))/2); p runs from 0 at the end of the warm-up to 1
///             at total_steps
///   wsd       peak, then linearly down to f·peak over the last decay_share·total_steps steps
///   constant  peak
/// The value stays constant from total_steps on. Throws ConfigError for an unknown name. Sources:
/// Loshchilov & Hutter 2017, eq. 5; Hu et al. 2024 (MiniCPM), section 4.2.
double learning_rate(const ScheduleConfig& config, double peak, std::int64_t step,
                     std::int64_t total_steps);

}  // namespace hybrid_trainer
