#pragma once

// Sums and maxima over a warp or a block, in an order that depends on the block's size alone.

#include "kernels/cuda/launch.cuh"

namespace hybrid_trainer::kernels::cuda {

constexpr int kWarp = 32;
constexpr unsigned int kAllLanes = 0xFFFFFFFFu;

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Max {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

/// The combination of all lanes' values, in each lane.
template <class T, class Combine>
__device__ T reduce_warp(T value, Combine combine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

/// The sum of the values of the lanes before this one; `total` becomes that of all lanes.
__device__ inline int sum_before(int value, int& total) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int sum = value;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int before = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += before;
  }
  total = __shfl_sync(kAllLanes, sum, kWarp - 1);
  return sum - value;
}

/// The combination of all threads' values, in each thread. The block's size is a multiple of 32;
/// every thread must call it. `none` is the neutral value.
template <class T, class Combine>
__device__ T reduce_block(T value, Combine combine, T none) {
  __shared__ T of_warp[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = reduce_warp(value, combine);
  __syncthreads();  // the last call's values have been read
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  return reduce_warp(lane < warps ? of_warp[lane] : none, combine);
}

}  // namespace hybrid_trainer::kernels::cuda
