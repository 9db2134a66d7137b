#include "hybrid_trainer/phases/recovery.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

Recovery wanted_for(Severity severity, const DivergenceConfig& config) {
  switch (severity) {
    case Severity::kNone:
      break;
    case Severity::kCaution:
      return config.on_caution;
    case Severity::kWarning:
      return config.on_warning;
    case Severity::kCritical:
      return config.on_critical;
  }
  return Recovery::kContinue;
}

}  // namespace

const std::vector<std::string>& enum_names(Recovery) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Recovery recovery : kAllRecoveries) all.emplace_back(name_of(recovery));
    return all;
  }();
  return names;
}

const char* name_of(Severity severity) {
  static constexpr const char* kNames[] = {"none", "caution", "warning", "critical"};
  return kNames[static_cast<std::size_t>(severity)];
}

Severity severity_of(Signal signal) {
  switch (signal) {
    case Signal::kNone:
      break;
    case Signal::kVanishing:
    case Signal::kOscillation:
      return Severity::kCaution;
    case Signal::kLoss:
    case Signal::kExplosion:
      return Severity::kWarning;
    case Signal::kNotFinite:
      return Severity::kCritical;
  }
  return Severity::kNone;
}

RecoveryAction choose_recovery(const Verdict& verdict, std::int64_t warnings_in_a_row,
                               const DivergenceConfig& config) {
  RecoveryAction action;
  action.severity = severity_of(verdict.signal);
  const bool persists = config.critical_after > 0 && warnings_in_a_row >= config.critical_after;
  if (action.severity == Severity::kWarning && persists) action.severity = Severity::kCritical;
  action.kind = wanted_for(action.severity, config);
  action.reason = verdict.reason;
  if (action.concerns_predictions() && action.kind != Recovery::kResetPredictor)
    action.steps = config.recovery_steps;
  if (action.kind == Recovery::kReduceHorizon) action.amount = config.horizon_factor;
  if (action.kind == Recovery::kRaiseThreshold) action.amount = config.threshold_raise;
  if (action.kind == Recovery::kRollBack) action.amount = config.roll_back_rate;
  return action;
}

std::string RecoveryAction::text() const {
  switch (kind) {
    case Recovery::kContinue:
      return "";
    case Recovery::kReduceHorizon:
      return concat("predictions are ", amount, " times as long for ", steps, " steps");
    case Recovery::kRaiseThreshold:
      return concat("the confidence threshold goes ", amount, " of the way to 1 for ", steps,
                    " steps");
    case Recovery::kResetPredictor:
      return "the predictor begins anew";
    case Recovery::kForceFull:
      return concat("no prediction for ", steps, " steps");
    case Recovery::kSkipBatch:
      return "the batch is left out";
    case Recovery::kRollBack:
      return concat("back to the last checkpoint, at ", amount, " of the learning rate");
    case Recovery::kAbort:
      return "the run ends";
  }
  return "";
}

}  // namespace hybrid_trainer
