#pragma once

#include <cstdint>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

// Numbers as one byte each, with one f32 scale, the largest magnitude, for each block of 256 of
// them. Source: Dettmers et al. 2022, "8-bit optimizers via block-wise quantization".

constexpr std::int64_t kQuantizationBlock = 256;

/// Scales of so many elements.
constexpr std::int64_t quantization_blocks(std::int64_t elements) {
  return (elements + kQuantizationBlock - 1) / kQuantizationBlock;
}

/// What the bytes stand for, in [-1, 1], times the scale: the values of a dynamic tree, whose seven
/// decades each have twice the values of the one below. Byte 0 is 0 in both.
enum class QuantizationMap {
  kSigned,   // for first moments: errors up to 0.71 % of the scale, below a tenth of it 0.15 %, ...
  kUnsigned  // for second moments, which are not negative: half of that
};

/// codes = the bytes whose values are nearest to x / scale; of two equally near the smaller value.
/// codes: u8 of x's shape; scales: (quantization_blocks(N)) f32; x: N elements, f32, of any shape.
/// The unsigned map takes a negative x for 0, and gives 0 to 0 alone: what is positive stays so,
/// since a second moment is divided by. A block with a NaN or an infinity gets the scale NaN, which
/// makes all of it NaN when dequantised. The same bits on every device.
void quantize(const Tensor& codes, const Tensor& scales, const Tensor& x, QuantizationMap map,
              const Stream& stream);
/// x = value of the code · scale of its block. Shapes and types as in quantize.
void dequantize(const Tensor& x, const Tensor& codes, const Tensor& scales, QuantizationMap map,
                const Stream& stream);

}  // namespace hybrid_trainer::kernels
