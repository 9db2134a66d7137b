#pragma once

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

/// Accepted actions: "continue", "reduce_horizon", "raise_threshold", "reset_predictor",
/// "force_full", "skip_batch", "roll_back", "abort".
const std::vector<std::string>& enum_names(Recovery);

/// Detection of divergence, and the actions taken. JSON group `divergence`.
struct DivergenceConfig {
  std::int64_t max_skipped_updates = 5;
  Recovery on_caution = Recovery::kContinue;
  Recovery on_warning = Recovery::kContinue;
  Recovery on_critical = Recovery::kSkipBatch;
  std::int64_t critical_after = 0;
  std::int64_t max_roll_backs = 3;

  // Constants:
  std::int64_t window = 32;          // number of updates in the moving statistics
  double loss_sigmas = 4.0;          // standard deviations above the expected loss
  double gradient_factor = 10.0;     // a norm above this multiple of the median is an explosion
  double vanishing_factor = 1e-4;    // a norm below this share of the median is vanishing
  double oscillation = 0.8;          // negative correlation of losses; 1: never
  std::int64_t recovery_steps = 40;  // number of steps that restrictions of predictions last
  double horizon_factor = 0.5;       // factor of the Predict length for each reduce_horizon
  double threshold_raise = 0.5;      // raises the threshold by this share of its distance to 1
  double roll_back_rate = 0.5;       // factor of the learning rate for each roll_back

  /// Returns whether any action is roll_back.
  bool rolls_back() const {
    return on_caution == Recovery::kRollBack || on_warning == Recovery::kRollBack ||
           on_critical == Recovery::kRollBack;
  }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"max_skipped_updates", self.max_skipped_updates,
                "Maximum number of updates in a row that are skipped, by skip_batch or because "
                "loss or gradient is not finite. The next one ends the run.",
                Range::at_least(0)});
    visit(Field{"on_caution", self.on_caution,
                "Action if the gradient vanishes or the loss oscillates. reduce_horizon, "
                "raise_threshold, reset_predictor and force_full affect only predictions and last "
                "for 40 steps; skip_batch makes no update; roll_back returns to the last "
                "checkpoint with a lower learning rate; abort ends the run."});
    visit(Field{"on_warning", self.on_warning,
                "Action if the loss is too high or the gradient explodes; see on_caution."});
    visit(Field{"on_critical", self.on_critical,
                "Action if loss or gradient is not finite; see on_caution. Such values never "
                "change the weights, regardless of the action."});
    visit(Field{"critical_after", self.critical_after,
                "Number of consecutive updates with a warning that count as critical; 0: never.",
                Range::at_least(0)});
    visit(Field{"max_roll_backs", self.max_roll_backs,
                "Maximum number of rollbacks of a run; the next one ends it.", Range::at_least(0)}
              .needs_any(KeyNeed::of(
                  {"divergence.on_caution", "divergence.on_warning", "divergence.on_critical"},
                  {"roll_back"}, "no divergence action is roll_back")));
    visit(constant("window", self.window, Range::at_least(4)));
    visit(constant("loss_sigmas", self.loss_sigmas, Range::above(0)));
    visit(constant("gradient_factor", self.gradient_factor, Range::above(1)));
    visit(constant("vanishing_factor", self.vanishing_factor, Range::fraction()));
    visit(constant("oscillation", self.oscillation, Range::between(0, 1)));
    visit(constant("recovery_steps", self.recovery_steps, Range::at_least(1)));
    visit(constant("horizon_factor", self.horizon_factor, Range{0, 1, true, true}));
    visit(constant("threshold_raise", self.threshold_raise, Range{0, 1, true, true}));
    visit(constant("roll_back_rate", self.roll_back_rate, Range{0, 1, true, false}));
  }
};

}  // namespace hybrid_trainer
