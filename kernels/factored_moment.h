#pragma once

#include <cmath>

namespace hybrid_trainer::kernels {

// Of Adafactor, on every backend: constexpr functions also compile as device code.

/// g² + ε1, which keeps second moments above 0.
constexpr float squared(float gradient) { return gradient * gradient + 1e-30f; }

/// The learning rate of an update whose mean square is given, lowered so far that the root mean
/// square is 1 at most.
constexpr float clipped_rate(float learning_rate, double mean_square) {
  const float size = static_cast<float>(std::sqrt(mean_square));
  return size > 1.0f ? learning_rate / size : learning_rate;
}

}  // namespace hybrid_trainer::kernels
