#pragma once

namespace hybrid_trainer::kernels {

// Used by every backend: constexpr functions also compile as device code.

/// Returns Φ(x), the standard normal distribution function, accurate to 2e-7. `power` must be
/// e^(−x²/2). Source: Abramowitz & Stegun 1964, formula 7.1.26.
constexpr float share_below(float x, float power) {
  const float distance = (x < 0 ? -x : x) * 0.707106781f;
  const float t = 1.0f / (1.0f + 0.3275911f * distance);
  const float sum =
      t * (0.254829592f +
           t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float above = 0.5f * sum * power;
  return x < 0 ? above : 1.0f - above;
}

/// Returns the derivative of x·Φ(x).
constexpr float share_slope(float x, float power) {
  return share_below(x, power) + 0.39894228f * x * power;
}

}  // namespace hybrid_trainer::kernels
