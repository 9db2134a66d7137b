#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hybrid_trainer {

/// What a training step does; see docs/ARCHITECTURE.md.
enum class Phase { kWarmup, kFull, kPredict, kCorrect };
inline constexpr std::size_t kPhases = 4;
inline constexpr std::array<Phase, kPhases> kAllPhases{Phase::kWarmup, Phase::kFull,
                                                       Phase::kPredict, Phase::kCorrect};

constexpr const char* name_of(Phase phase) {
  constexpr std::array<const char*, kPhases> names{"warmup", "full", "predict", "correct"};
  return names[static_cast<std::size_t>(phase)];
}

/// What became of a prediction.
enum class Decision { kNone, kAccepted, kShrunk, kReverted };
inline constexpr std::array<Decision, 4> kAllDecisions{Decision::kNone, Decision::kAccepted,
                                                       Decision::kShrunk, Decision::kReverted};

constexpr const char* name_of(Decision decision) {
  constexpr std::array<const char*, kAllDecisions.size()> names{"none", "accepted", "shrunk",
                                                                "reverted"};
  return names[static_cast<std::size_t>(decision)];
}

/// What became of the predictions of a run.
struct PredictionCounts {
  std::int64_t made = 0;  // Predict phases begun
  std::int64_t accepted = 0;
  std::int64_t shrunk = 0;
  std::int64_t reverted = 0;  // including those that a divergence ended
};

}  // namespace hybrid_trainer
