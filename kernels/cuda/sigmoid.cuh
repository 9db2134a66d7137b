#pragma once

#include "kernels/cuda/launch.cuh"

namespace hybrid_trainer::kernels::cuda {

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// Of silu(x) = x·sigmoid(x).
__device__ inline float silu_derivative(float x) {
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}

/// log(1 + e^x).
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

}  // namespace hybrid_trainer::kernels::cuda
