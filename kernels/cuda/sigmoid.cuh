#pragma once

#include "kernels/cuda/launch.cuh"

namespace hybrid_trainer::kernels::cuda {

/// Within some 1e-6 of it. Kernels that are bound by memory have no time for a division and an expf.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

/// Of silu(x) = x·sigmoid(x).
__device__ inline float silu_derivative(float x) {
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}

/// log(1 + e^x).
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

}  // namespace hybrid_trainer::kernels::cuda
