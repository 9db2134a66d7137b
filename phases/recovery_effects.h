#pragma once

#include <cstdint>

#include "hybrid_trainer/phases/recovery.h"
#include "phases/state_fields.h"

namespace hybrid_trainer {

/// How recoveries hold predictions back: each for the steps that it lasts, and what is repeated
/// meanwhile adds up.
class RecoveryEffects {
 public:
  /// `step` is the number of steps done, the one that went wrong included.
  void add(const RecoveryAction& action, std::int64_t step) {
    if (action.kind == Recovery::kReduceHorizon) {
      horizon_ = horizon(step) * action.amount;
      horizon_until_ = step + action.steps;
    } else if (action.kind == Recovery::kRaiseThreshold) {
      doubt_ = doubt(step) * (1 - action.amount);
      doubt_until_ = step + action.steps;
    } else if (action.kind == Recovery::kForceFull) {
      full_until_ = step + action.steps;
    }
  }
  /// Steps that remain of a granted Predict phase, at least one.
  std::int64_t shortened(std::int64_t granted, std::int64_t step) const {
    const auto left = static_cast<std::int64_t>(horizon(step) * static_cast<double>(granted));
    return left < 1 ? 1 : left;
  }
  double threshold(double configured, std::int64_t step) const {
    return raises_threshold(step) ? 1 - doubt_ * (1 - configured) : configured;
  }
  bool raises_threshold(std::int64_t step) const { return step < doubt_until_; }
  bool forces_full(std::int64_t step) const { return step < full_until_; }

  template <class Self, class Visit>
  static void visit_state(Self& self, const Visit& visit) {
    visit("phases.recovery.horizon", self.horizon_);
    visit("phases.recovery.horizon_until", self.horizon_until_);
    visit("phases.recovery.doubt", self.doubt_);
    visit("phases.recovery.doubt_until", self.doubt_until_);
    visit("phases.recovery.full_until", self.full_until_);
  }

 private:
  double horizon(std::int64_t step) const { return step < horizon_until_ ? horizon_ : 1.0; }
  double doubt(std::int64_t step) const { return raises_threshold(step) ? doubt_ : 1.0; }
  double horizon_ = 1, doubt_ = 1;  // doubt: share of 1 − confidence_threshold that is left
  std::int64_t horizon_until_ = 0, doubt_until_ = 0, full_until_ = 0;
};

}  // namespace hybrid_trainer
