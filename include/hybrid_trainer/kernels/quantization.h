#pragma once

#include <cstdint>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

// Numbers quantized to one byte each, with one f32 scale, the largest magnitude, for each block of
// 256. Source: Dettmers et al. 2022, "8-bit optimizers via block-wise quantization".

constexpr std::int64_t kQuantizationBlock = 256;

/// The number of scales for so many elements.
constexpr std::int64_t quantization_blocks(std::int64_t elements) {
  return (elements + kQuantizationBlock - 1) / kQuantizationBlock;
}

/// The values in [-1, 1], times the scale, that the bytes stand for: a dynamic tree of seven
/// decades, each with twice as many values as the one below. Byte 0 is 0 in both.
enum class QuantizationMap {
  kSigned,   // for first moments: errors up to 0.71 % of the scale, below a tenth of it 0.15 %, ...
  kUnsigned  // for second moments, which are not negative: half of that
};

/// codes = the bytes in whose intervals x / scale is: a decade is cut into equal ones, with values in
/// their middles; between 0 and the first value, and below 1, the nearer one is taken. On a bound it
/// is the smaller value. codes: u8
/// of x's shape; scales: (quantization_blocks(N)) f32; x: N elements, f32, of any shape. The
/// unsigned map treats a negative x as 0, and maps only 0 to 0: positive values stay positive,
/// since second moments are divided by. A block with a NaN or an infinity gets the scale NaN, so
/// that all of it dequantises to NaN. Bit-identical on every device.
void quantize(const Tensor& codes, const Tensor& scales, const Tensor& x, QuantizationMap map,
              const Stream& stream);
/// x = value of the code · scale of its block. Shapes and types as in quantize.
void dequantize(const Tensor& x, const Tensor& codes, const Tensor& scales, QuantizationMap map,
                const Stream& stream);

}  // namespace hybrid_trainer::kernels
