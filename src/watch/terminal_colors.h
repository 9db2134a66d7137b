#pragma once

#include <array>

#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

/// Numbers of a terminal's escape sequences.
constexpr const char* kSoft = "2";
constexpr const char* kBold = "1";
constexpr const char* kRed = "31";
constexpr const char* kGreen = "32";

inline const char* color_of(Phase phase) {
  static constexpr std::array<const char*, kPhases> kColors{"36", "34", "35", "33"};
  return kColors[static_cast<std::size_t>(phase)];
}

}  // namespace hybrid_trainer
