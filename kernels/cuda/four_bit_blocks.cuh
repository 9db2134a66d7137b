#pragma once

// Blocks of 4-bit numbers (kernels/four_bit.h) as kernels read them.

#include "kernels/cuda/real.cuh"
#include "kernels/four_bit_levels.h"

namespace hybrid_trainer::kernels::cuda {

__device__ const std::array<float, 16> kDeviceNormals = kFourBitValues;
__device__ const std::array<float, 16> kDeviceFloats = kFourBitFloats;
__device__ const std::array<float, 256> kDeviceLevels = make_four_bit_levels();

struct FourBitBlocks {
  const std::uint8_t *codes, *levels;  // levels: null where the scales are the magnitudes
  const float* scales;
  float offset;
  FourBitType type;

  /// What the codes stand for, to be multiplied by the block's magnitude.
  __device__ const float* values() const {
    return type == FourBitType::kNormal ? kDeviceNormals.data() : kDeviceFloats.data();
  }
  __device__ float magnitude(std::int64_t block) const {
    if (levels == nullptr) return scales[block];
    const float level = kDeviceLevels.data()[levels[block]];
    return __fadd_rn(__fmul_rn(level, scales[block / kFourBitLevelBlock]), offset);
  }
};

inline FourBitBlocks blocks_of(const FourBitTensors& from) {
  return {from.codes.data<std::uint8_t>(),
          from.levels.defined() ? from.levels.data<std::uint8_t>() : nullptr,
          from.scales.data<float>(), from.offset, from.type};
}

}  // namespace hybrid_trainer::kernels::cuda
