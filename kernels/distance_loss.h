#pragma once

namespace hybrid_trainer::kernels {

// For every backend: constexpr functions also compile as device code.

struct LossAndSlope {
  float loss, slope;
};

constexpr LossAndSlope squared_distance(float d) { return {d * d, 2 * d}; }

constexpr LossAndSlope huber_distance(float d, float delta) {
  const float size = d < 0 ? -d : d;
  if (size > delta) return {delta * (size - 0.5f * delta), d < 0 ? -delta : delta};
  return {0.5f * d * d, d};
}

constexpr LossAndSlope smooth_distance(float d, float beta) {
  const float size = d < 0 ? -d : d;
  if (size >= beta) return {size - 0.5f * beta, d < 0 ? -1.0f : 1.0f};
  return {0.5f * d * d / beta, d / beta};
}

}  // namespace hybrid_trainer::kernels
