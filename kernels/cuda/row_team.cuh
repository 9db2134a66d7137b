#pragma once

// Teams of threads that share a row of a matrix.

#include <algorithm>

#include "kernels/cuda/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

constexpr int kTeamThreads = 256;  // of a block, and of the largest team

/// The threads that share a row of so many packs: lanes of a warp, as few as the packs need, or a
/// whole block.
inline int row_team(std::int64_t packs) {
  int lanes = 1;
  while (lanes < kWarp && lanes < packs) lanes *= 2;
  if (packs <= lanes) return lanes;
  return static_cast<int>(
      std::min<std::int64_t>((packs + kWarp - 1) / kWarp * kWarp, kTeamThreads));
}

/// The sum over a team of lanes, in each of them. All lanes of the warp call it.
__device__ inline float sum_over_lanes(float value, int team) {
  for (int distance = team / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

/// The sum over a team, in each of its threads. All threads of the block call it.
__device__ inline float sum_over_team(float value, int team) {
  return team > kWarp ? reduce_block(value, Sum{}, 0.0f) : sum_over_lanes(value, team);
}

}  // namespace hybrid_trainer::kernels::cuda
