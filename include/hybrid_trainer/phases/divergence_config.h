#pragma once

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

/// "continue", "reduce_horizon", "raise_threshold", "reset_predictor", "force_full", "skip_batch",
/// "roll_back", "abort".
const std::vector<std::string>& enum_names(Recovery);

/// When training counts as diverging, and what is done then.
struct DivergenceConfig {
  std::int64_t window = 32;
  double loss_sigmas = 4.0;
  double gradient_factor = 10.0;
  double vanishing_factor = 1e-4;
  double oscillation = 0.8;
  std::int64_t max_skipped_updates = 5;
  Recovery on_caution = Recovery::kContinue;
  Recovery on_warning = Recovery::kContinue;
  Recovery on_critical = Recovery::kSkipBatch;
  std::int64_t critical_after = 0;
  std::int64_t recovery_steps = 40;
  double horizon_factor = 0.5;
  double threshold_raise = 0.5;
  double roll_back_rate = 0.5;
  std::int64_t max_roll_backs = 3;

  /// Whether a run may go back to a checkpoint.
  bool rolls_back() const {
    return on_caution == Recovery::kRollBack || on_warning == Recovery::kRollBack ||
           on_critical == Recovery::kRollBack;
  }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"window", self.window, "Updates that the moving statistics cover.",
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
                "Negative correlation of neighboring losses at which they oscillate; 1 is never.",
                Range::between(0, 1)});
    visit(Field{"max_skipped_updates", self.max_skipped_updates,
                "Updates in a row that may be skipped before the run ends, because loss or "
                "gradient is not finite or by skip_batch.",
                Range::at_least(0)});
    visit(Field{"on_caution", self.on_caution,
                "Action when the gradient vanishes or the loss oscillates. reduce_horizon, "
                "raise_threshold, reset_predictor and force_full concern predictions and last for "
                "recovery_steps; skip_batch makes no update; roll_back returns to the last "
                "checkpoint with a lower learning rate; abort ends the run."});
    visit(Field{"on_warning", self.on_warning,
                "Action when the loss is too high or the gradient explodes; see on_caution."});
    visit(Field{"on_critical", self.on_critical,
                "Action when loss or gradient is not finite; see on_caution. Such values never "
                "reach the weights, whatever the action."});
    visit(Field{"critical_after", self.critical_after,
                "Updates in a row with a warning after which it counts as critical; 0 is never.",
                Range::at_least(0)});
    visit(Field{"recovery_steps", self.recovery_steps,
                "Steps that a shorter horizon, a higher threshold or force_full last.",
                Range::at_least(1)});
    visit(Field{"horizon_factor", self.horizon_factor,
                "Factor by which reduce_horizon shortens a Predict phase, again each time.",
                Range{0, 1, true, true}});
    visit(Field{"threshold_raise", self.threshold_raise,
                "Share of the way from the confidence threshold to 1 that raise_threshold goes, "
                "again each time. Meanwhile probes wait for the confidence too.",
                Range{0, 1, true, true}});
    visit(Field{"roll_back_rate", self.roll_back_rate,
                "Factor by which roll_back multiplies the learning rate, again each time.",
                Range{0, 1, true, false}});
    visit(Field{"max_roll_backs", self.max_roll_backs,
                "Most roll backs of a run; the next one ends it.", Range::at_least(0)});
  }
};

}  // namespace hybrid_trainer
