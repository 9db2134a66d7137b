#pragma once

#include <array>
#include <cstddef>

namespace hybrid_trainer {

/// What became of a prediction.
enum class Decision { kNone, kAccepted, kShrunk, kReverted };
inline constexpr std::array<Decision, 4> kAllDecisions{Decision::kNone, Decision::kAccepted,
                                                       Decision::kShrunk, Decision::kReverted};

constexpr const char* name_of(Decision decision) {
  constexpr std::array<const char*, kAllDecisions.size()> names{"none", "accepted", "shrunk",
                                                                "reverted"};
  return names[static_cast<std::size_t>(decision)];
}

}  // namespace hybrid_trainer
