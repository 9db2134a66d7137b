#pragma once

#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/divergence_config.h"
#include "hybrid_trainer/phases/trainable.h"
#include "phases/state_fields.h"

namespace hybrid_trainer {

/// Fault of a measurement. All but kNotFinite are warnings: no Predict may begin, and one in
/// progress ends. Values that are not finite must not reach the weights.
enum class Signal { kNone, kNotFinite, kLoss, kExplosion, kVanishing, kOscillation };

struct Verdict {
  Signal signal = Signal::kNone;
  std::string reason;  // "" where nothing is wrong
  bool normal() const { return signal == Signal::kNone; }
};

/// Watches loss and gradient norm of the updates. Until `window` updates have been seen, only
/// values that are not finite are reported.
class DivergenceMonitor {
 public:
  explicit DivergenceMonitor(const DivergenceConfig& config) : config_(config) {}

  /// Judges a measurement against the updates seen so far, without adding it.
  Verdict assess(const GradientMeasurement& measurement) const;
  /// Judges a forward loss against the expected one; a loss that is as expected is normal.
  Verdict assess_loss(double loss, double expected) const;
  /// Adds the measurement of an update.
  void observe(const GradientMeasurement& measurement);

  /// An oscillation was answered by leaving an update out: it is judged anew once the window holds
  /// later losses alone. The losses that show it would else show it for ever.
  void use_up_oscillation() { used_up_ = static_cast<std::int64_t>(losses_.size()); }

  /// Mean loss of the updates in the window; NaN before the first.
  double mean_loss() const;

  void save(State& state) const;
  void load(const State& state);

 private:
  bool ready() const;
  DivergenceConfig config_;
  std::vector<double> losses_, norms_;  // the last `window` updates, oldest first
  std::int64_t used_up_ = 0;            // the oldest losses, whose oscillation was answered
};

/// Severity of a signal: kVanishing and kOscillation are cautions, kLoss and kExplosion warnings,
/// kNotFinite is critical.
enum class Severity { kNone, kCaution, kWarning, kCritical };

/// "none", "caution", "warning", "critical".
const char* name_of(Severity severity);
Severity severity_of(Signal signal);

/// Action for a verdict, with its numbers.
struct RecoveryAction {
  Recovery kind = Recovery::kContinue;
  Severity severity = Severity::kNone;
  std::string reason;      // the verdict's
  double amount = 1;       // horizon_factor, threshold_raise or roll_back_rate, where one counts
  std::int64_t steps = 0;  // that it lasts; 0 where it is done at once

  bool concerns_predictions() const {
    return kind > Recovery::kContinue && kind < Recovery::kSkipBatch;
  }
  /// "" for kContinue, else what is done, for people.
  std::string text() const;
};

/// Chooses the action that the config asks for after `warnings_in_a_row` updates with a warning or
/// worse, this one included; pure.
RecoveryAction choose_recovery(const Verdict& verdict, std::int64_t warnings_in_a_row,
                               const DivergenceConfig& config);

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
