#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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

/// Results of the predictions of a run.
struct PredictionCounts {
  std::int64_t made = 0;  // Predict phases begun
  std::int64_t accepted = 0;
  std::int64_t shrunk = 0;
  std::int64_t reverted = 0;  // including predictions ended by a divergence
};

}  // namespace hybrid_trainer
