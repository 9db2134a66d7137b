#pragma once

#include "hybrid_trainer/kernels/four_bit.h"
#include "kernels/check.h"

namespace hybrid_trainer::kernels {

constexpr std::int64_t four_bit_parts(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

/// Throws ShapeMismatch or Error if the tensors are not those of `count` numbers.
inline void check_four_bit(const KernelCall& call, const FourBitTensors& tensors,
                           std::int64_t count) {
  const std::int64_t blocks = four_bit_parts(count, kFourBitBlock);
  check_shape(call, {"codes", tensors.codes}, {four_bit_parts(count, 2)}, DType::kU8);
  if (tensors.levels.defined()) check_shape(call, {"levels", tensors.levels}, {blocks}, DType::kU8);
  check_shape(call, {"scales", tensors.scales},
              {tensors.levels.defined() ? four_bit_parts(blocks, kFourBitLevelBlock) : blocks},
              DType::kF32);
}

}  // namespace hybrid_trainer::kernels
