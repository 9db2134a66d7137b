#pragma once

#include <cmath>

#include "hybrid_trainer/kernels/optimizer_update.h"

namespace hybrid_trainer::kernels {

// The same step on every backend: constexpr functions also compile as device code.

/// What Adam's two bias corrections amount to in one step.
struct AdamFactors {
  explicit AdamFactors(const AdamWSettings& s)
      : step_size(static_cast<float>(s.learning_rate / correction(s.beta1, s.step))),
        variance_scale(static_cast<float>(1.0 / correction(s.beta2, s.step))),
        epsilon(s.epsilon) {}
  static double correction(double beta, std::int64_t step) {
    return 1.0 - std::pow(beta, static_cast<double>(step));
  }
  constexpr float change(float m, float v) const {
    return -step_size * m / (std::sqrt(v * variance_scale) + epsilon);
  }
  float step_size;
  float variance_scale;
  float epsilon;
};

/// One AdamW step of one weight.
struct AdamWStep {
  explicit AdamWStep(const AdamWSettings& s)
      : factors(s),
        beta1(s.beta1),
        beta2(s.beta2),
        gradient_scale(s.gradient_scale),
        kept(1.0f - s.learning_rate * s.weight_decay) {}
  /// Returns the new weight and updates the moments m and v with the gradient.
  constexpr float operator()(float weight, float gradient, float& m, float& v) const {
    const float scaled = gradient * gradient_scale;
    const float mean = beta1 * m + (1.0f - beta1) * scaled;
    const float square = beta2 * v + (1.0f - beta2) * scaled * scaled;
    m = mean;
    v = square;
    return weight * kept + factors.change(mean, square);
  }
  AdamFactors factors;
  float beta1;
  float beta2;
  float gradient_scale;
  float kept;  // share of the weight left by its decay
};

}  // namespace hybrid_trainer::kernels
