#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// "off" or "warmup".
const std::vector<std::string>& finder_mode_names();

/// Whether Warmup raises a learning rate that is far too low, by probing on along the last update.
struct LearningRateFinderConfig {
  std::string mode = "off";
  std::int64_t interval = 12;
  double largest_factor = 4.0;
  double batch_share = 0.25;
  std::int64_t refusals = 2;

  bool is_on() const { return mode != "off"; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{
        "mode", self.mode,
        "off, or warmup: in Warmup, once the schedule is at its highest rate, losses further along "
        "the last update show whether the rate is too low, and raise it for the rest of the run. "
        "It rescues a constant rate that is far too low. Under a schedule that decays, the rate "
        "found may be 2.6 to 4 times too low. It makes no run faster than the right rate does.",
        Range{}, finder_mode_names()});
    visit(Field{"interval", self.interval,
                "Updates between two probes. A probe goes further along their sum. Sums of fewer "
                "updates are noisier, and the rate found is too high more often.",
                Range::at_least(1)});
    visit(Field{"largest_factor", self.largest_factor,
                "Largest factor by which one probe raises the learning rate.", Range::above(1)});
    visit(Field{"batch_share", self.batch_share,
                "Share of the next step's batch on which a probe takes losses.",
                Range{0, 1, true, false}});
    visit(Field{"refusals", self.refusals,
                "Probes in a row that find nothing lower, after which probing ends.",
                Range::at_least(1)});
  }
};

}  // namespace hybrid_trainer
