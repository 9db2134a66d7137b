#pragma once

#include <cstdint>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// When training counts as diverging.
struct DivergenceConfig {
  std::int64_t window = 32;
  double loss_sigmas = 4.0;
  double gradient_factor = 10.0;
  double vanishing_factor = 1e-4;
  double oscillation = 0.8;
  std::int64_t max_skipped_updates = 5;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"window", self.window, "Updates that the moving statistics look back on.",
                Range::at_least(4)});
    visit(Field{"loss_sigmas", self.loss_sigmas,
                "Standard deviations above its expectation at which a loss is too high.",
                Range::above(0)});
    visit(Field{"gradient_factor", self.gradient_factor,
                "Multiple of its median at which the gradient norm has exploded.",
                Range::above(1)});
    visit(Field{"vanishing_factor", self.vanishing_factor,
                "Share of its median at which the gradient norm has vanished.", Range::fraction()});
    visit(Field{"oscillation", self.oscillation,
                "Negative correlation of neighbouring losses at which they oscillate; 1 is never.",
                Range::between(0, 1)});
    visit(Field{"max_skipped_updates", self.max_skipped_updates,
                "Updates in a row that may be skipped because loss or gradient is not finite.",
                Range::at_least(0)});
  }
};

}  // namespace hybrid_trainer
