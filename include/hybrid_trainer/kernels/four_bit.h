#pragma once

#include <array>
#include <cstdint>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

// Numbers quantized to 4 bits each, as bitsandbytes does it: blocks of 64 with one magnitude, which is
// f32 (0.563 bytes a number) or quantized itself, to one byte beside an offset, in blocks of 256 with
// one f32 scale (0.516). Source: Dettmers et al. 2023, "QLoRA", sections 3 and 4.

constexpr std::int64_t kFourBitBlock = 64, kFourBitLevelBlock = 256;

/// Levels of the codes, to be multiplied by the block's magnitude: NormalFloat 4, equally likely
/// values of a normal distribution; or 4-bit floating point of a sign, two bits of exponent and one
/// of fraction.
enum class FourBitType { kNormal, kFloat };
constexpr std::array<float, 16> kFourBitValues{-1.0f,
                                               -0.6961928009986877f,
                                               -0.5250730514526367f,
                                               -0.39491748809814453f,
                                               -0.28444138169288635f,
                                               -0.18477343022823334f,
                                               -0.09105003625154495f,
                                               0.0f,
                                               0.07958029955625534f,
                                               0.16093020141124725f,
                                               0.24611230194568634f,
                                               0.33791524171829224f,
                                               0.44070982933044434f,
                                               0.5626170039176941f,
                                               0.7229568362236023f,
                                               1.0f};

constexpr std::array<float, 16> kFourBitFloats{
    0.0f, 0.0625f / 12,  8.0f / 12,  12.0f / 12,  4.0f / 12,  6.0f / 12,  2.0f / 12,  3.0f / 12,
    0.0f, -0.0625f / 12, -8.0f / 12, -12.0f / 12, -4.0f / 12, -6.0f / 12, -2.0f / 12, -3.0f / 12};
constexpr const std::array<float, 16>& four_bit_values(FourBitType type) {
  return type == FourBitType::kNormal ? kFourBitValues : kFourBitFloats;
}

/// What the levels stand for, ascending, times their block's scale: a dynamic tree of seven decades.
extern const std::array<float, 256> kFourBitLevels;

struct FourBitTensors {
  Tensor codes;   // u8, two numbers each, the first one in the upper half
  Tensor levels;  // u8, one for each block; undefined: the scales are the magnitudes
  Tensor scales;  // f32, one for each kFourBitLevelBlock blocks, or for each block
  float offset = 0;
  FourBitType type = FourBitType::kNormal;
  /// For so many numbers, without values, with levels.
  static FourBitTensors empty(std::int64_t count, FourBitType type, const Stream& stream);
};

/// values = value of the code · (value of the level · scale + offset), or · scale, products and sum
/// rounded to f32. values: f32 or bf16, of any shape. Bit-identical on every device.
void dequantize_four_bit(const Tensor& values, const FourBitTensors& from, const Stream& stream);
/// The scale of a block is its largest magnitude, and a code that of the value that is nearest to
/// number / scale, of two the smaller. `to`: kNormal without levels; values: f32, of any shape. A
/// block with a NaN or an infinity gets the scale NaN, so that all of it dequantises to NaN; one
/// whose largest magnitude is not a normal number becomes 0. Bit-identical on every device.
void quantize_four_bit(const FourBitTensors& to, const Tensor& values, const Stream& stream);

}  // namespace hybrid_trainer::kernels
