#pragma once

#include "hybrid_trainer/phases/divergence_config.h"
#include "phases/state_fields.h"

namespace hybrid_trainer {

/// Problem of a measurement. Any problem ends or prevents Predict; kNotFinite forbids the update.
enum class Signal { kNone, kNotFinite, kLoss, kExplosion, kVanishing, kOscillation };

struct Verdict {
  Signal signal = Signal::kNone;
  std::string reason;  // "" without a problem
  bool normal() const { return signal == Signal::kNone; }
};

/// Monitors loss and gradient norm. For the first `window` updates, reports only non-finite values.
class DivergenceMonitor {
 public:
  explicit DivergenceMonitor(const DivergenceConfig& config) : config_(config) {}

  /// Compares a measurement with earlier updates. Does not record it.
  Verdict assess(const GradientMeasurement& measurement) const;
  Verdict assess_loss(double loss, double expected) const;
  void observe(const GradientMeasurement& measurement);

  /// Marks an oscillation as handled by a skipped update. It is reported again only when the window
  /// consists of later losses; otherwise, the same losses would be reported forever.
  void mark_oscillation_handled() { handled_losses_ = static_cast<std::int64_t>(losses_.size()); }

  /// Returns the mean loss of the updates in the window, or NaN before the first update.
  double mean_loss() const;

  void save(State& state) const;
  void load(const State& state);

 private:
  bool ready() const;
  DivergenceConfig config_;
  std::vector<double> losses_, norms_;  // the last `window` updates, oldest first
  std::int64_t handled_losses_ = 0;     // number of oldest losses whose oscillation was handled
};

enum class Severity { kNone, kCaution, kWarning, kCritical };

const char* name_of(Severity severity);
Severity severity_of(Signal signal);

struct RecoveryAction {
  Recovery kind = Recovery::kContinue;
  Severity severity = Severity::kNone;
  std::string reason;      // reason of the verdict
  double amount = 1;       // horizon_factor, threshold_raise or roll_back_rate
  std::int64_t steps = 0;  // duration in steps; 0 if the action takes effect once

  bool concerns_predictions() const {
    return kind > Recovery::kContinue && kind < Recovery::kSkipBatch;
  }
  std::string text() const;
};

/// Returns the configured action for a verdict. `warnings_in_a_row`: number of consecutive updates
/// with a warning or worse, including this one.
RecoveryAction choose_recovery(const Verdict& verdict, std::int64_t warnings_in_a_row,
                               const DivergenceConfig& config);

/// Restrictions of predictions by recovery actions. Repeated actions accumulate.
class RecoveryEffects {
 public:
  /// `step`: number of completed steps, including the one with the problem.
  void add(const RecoveryAction& action, std::int64_t step) {
    if (action.kind == Recovery::kReduceHorizon) {
      horizon_ = horizon(step) * action.amount;
      horizon_until_ = step + action.steps;
    } else if (action.kind == Recovery::kRaiseThreshold) {
      low_confidence_factor_ = doubt(step) * (1 - action.amount);
      low_confidence_until_ = step + action.steps;
    } else if (action.kind == Recovery::kForceFull) {
      full_until_ = step + action.steps;
    }
  }
  std::int64_t shortened(std::int64_t allowed, std::int64_t step) const {
    const auto left = static_cast<std::int64_t>(horizon(step) * static_cast<double>(allowed));
    return left < 1 ? 1 : left;
  }
  double threshold(double configured, std::int64_t step) const {
    return raises_threshold(step) ? 1 - low_confidence_factor_ * (1 - configured) : configured;
  }
  bool raises_threshold(std::int64_t step) const { return step < low_confidence_until_; }
  bool forces_full(std::int64_t step) const { return step < full_until_; }

  template <class Self, class Visit>
  static void visit_state(Self& self, const Visit& visit) {
    visit("phases.recovery.horizon", self.horizon_);
    visit("phases.recovery.horizon_until", self.horizon_until_);
    visit("phases.recovery.doubt", self.low_confidence_factor_);
    visit("phases.recovery.doubt_until", self.low_confidence_until_);
    visit("phases.recovery.full_until", self.full_until_);
  }

 private:
  double horizon(std::int64_t step) const { return step < horizon_until_ ? horizon_ : 1.0; }
  double doubt(std::int64_t step) const {
    return raises_threshold(step) ? low_confidence_factor_ : 1.0;
  }
  double horizon_ = 1,
         low_confidence_factor_ = 1;  // remaining share of 1 − confidence_threshold
  std::int64_t horizon_until_ = 0, low_confidence_until_ = 0, full_until_ = 0;
};

}  // namespace hybrid_trainer
