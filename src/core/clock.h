#pragma once

#include <chrono>

namespace hybrid_trainer {

/// The clock that all durations are measured by; it never jumps.
using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace hybrid_trainer
