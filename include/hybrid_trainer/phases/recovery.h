#pragma once

#include <cstdint>
#include <string>

#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/phases/divergence_config.h"
#include "hybrid_trainer/phases/divergence_monitor.h"

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
