#pragma once

#include <cstdint>

namespace hybrid_trainer {

/// What became of the predictions of a run.
struct PredictionCounts {
  std::int64_t made = 0;  // Predict phases begun
  std::int64_t accepted = 0;
  std::int64_t shrunk = 0;
  std::int64_t reverted = 0;  // including those that a divergence ended
};

}  // namespace hybrid_trainer
