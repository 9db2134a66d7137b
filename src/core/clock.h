#pragma once

#include <chrono>

namespace hybrid_trainer {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace hybrid_trainer
