#pragma once

#include <array>
#include <cstddef>

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

}  // namespace hybrid_trainer
