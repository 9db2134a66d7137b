#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace hybrid_trainer {

/// Kind of a training step; see docs/ARCHITECTURE.md.
enum class Phase { kWarmup, kFull, kPredict, kCorrect };
inline constexpr std::size_t kPhases = 4;
inline constexpr std::array<Phase, kPhases> kAllPhases{Phase::kWarmup, Phase::kFull,
                                                       Phase::kPredict, Phase::kCorrect};

constexpr const char* name_of(Phase phase) {
  constexpr std::array<const char*, kPhases> names{"warmup", "full", "predict", "correct"};
  return names[static_cast<std::size_t>(phase)];
}

enum class Decision { kNone, kAccepted, kShrunk, kReverted };
inline constexpr std::array<Decision, 4> kAllDecisions{Decision::kNone, Decision::kAccepted,
                                                       Decision::kShrunk, Decision::kReverted};

constexpr const char* name_of(Decision decision) {
  constexpr std::array<const char*, kAllDecisions.size()> names{"none", "accepted", "shrunk",
                                                                "reverted"};
  return names[static_cast<std::size_t>(decision)];
}

/// Actions after a failed step, mildest first.
enum class Recovery {
  kContinue,
  kReduceHorizon,
  kRaiseThreshold,
  kResetPredictor,
  kForceFull,
  kSkipBatch,
  kRollBack,
  kAbort
};
inline constexpr std::array kAllRecoveries{Recovery::kContinue,       Recovery::kReduceHorizon,
                                           Recovery::kRaiseThreshold, Recovery::kResetPredictor,
                                           Recovery::kForceFull,      Recovery::kSkipBatch,
                                           Recovery::kRollBack,       Recovery::kAbort};

constexpr const char* name_of(Recovery recovery) {
  constexpr std::array<const char*, kAllRecoveries.size()> names{
      "continue",   "reduce_horizon", "raise_threshold", "reset_predictor",
      "force_full", "skip_batch",     "roll_back",       "abort"};
  return names[static_cast<std::size_t>(recovery)];
}

/// Results and decisions of one step. Costs are in Full steps.
struct StepOutcome {
  Phase phase = Phase::kWarmup;
  double loss =
      0;  // mean over the batch with the weights before the step; nats per token for texts
  /// Global L2 norm before clipping; absent if no gradient was computed.
  std::optional<double> gradient_norm;
  std::optional<double> predicted_loss;  // expected `loss`, in Predict and Correct
  /// Estimated probability that the predicted direction lowers the loss, in [0, 1].
  std::optional<double> confidence;
  /// Predictor of the prediction, in Predict and in the step that decides; otherwise "".
  std::string predictor;
  /// Decrease of the loss by predictions, minus the decrease by Full steps of the same cost. Only
  /// in Full. The final loss cannot be estimated from this number.
  std::optional<double> advantage;
  /// ‖predicted − exact‖/‖exact‖ of the delayed updates that arrived by the end of the step.
  std::optional<double> prediction_error;
  /// Learning-rate finder: its factor on the schedule's rate, and in a probe the position of the
  /// lowest loss, in updates (0: none was lower), and the cost.
  std::optional<double> rate_factor, probe_position, probe_cost;
  std::optional<double> planning_cost;  // of model-based horizons; absent without them
  Decision decision = Decision::kNone;
  /// Most severe recovery action. A rollback is in the first record after it.
  Recovery recovery = Recovery::kContinue;
  double cost = 0;  // of the step, with its probe and its planning
  /// Reason for a change of phase or weights: "accepted: ...", "reverted: ...", or "".
  std::string event;
  bool warns = false;  // whether the event is a warning
};

/// Results of the predictions of a run.
struct PredictionCounts {
  std::int64_t made = 0;  // Predict phases begun
  std::int64_t accepted = 0;
  std::int64_t shrunk = 0;
  std::int64_t reverted = 0;  // including predictions ended by a divergence
};

}  // namespace hybrid_trainer
