#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

// Values quantized to one byte each, in blocks of 256. A block has one f32 scale, its largest
// magnitude. Source: Dettmers et al. 2022, "8-bit optimizers via block-wise quantization".

constexpr std::int64_t kQuantizationBlock = 256;

constexpr std::int64_t quantization_blocks(std::int64_t elements) {
  return (elements + kQuantizationBlock - 1) / kQuantizationBlock;
}

/// A map from bytes to values in [-1, 1], multiplied by the block's scale: a dynamic tree of seven
/// decades, each with twice as many values as the decade below. Byte 0 is 0.
enum class QuantizationMap {
  /// Map for first moments. Errors are at most 0.71 % of the scale, or 0.15 % for values below a
  /// tenth of the scale.
  kSigned,
  kUnsigned  // for second moments, which are not negative: half the errors of kSigned
};

/// codes[i] is the byte whose interval contains x[i] / scale. A decade consists of equal intervals,
/// and each byte's value is the center of its interval. Next to 0 and to ±1, the nearer value is
/// used. An x between two intervals gets the smaller value. codes: u8 of x's shape; scales:
/// (quantization_blocks(N)) f32; x: N elements, f32. The unsigned map treats a negative x as 0, and
/// maps no positive number to 0, because optimizers divide by its square root. A block with a NaN
/// or an infinity becomes NaN. Bit-identical on every device.
void quantize(const Tensor& codes, const Tensor& scales, const Tensor& x, QuantizationMap map,
              const Stream& stream);
/// x = value of the code · scale of the code's block. The shapes and dtypes are as in quantize.
void dequantize(const Tensor& x, const Tensor& codes, const Tensor& scales, QuantizationMap map,
                const Stream& stream);

// A matrix quantized to 8 bits, with one magnitude per row, as in LLM.int8() without separate
// outliers. Source: Dettmers et al. 2022, "LLM.int8()", section 2.1.

struct EightBitTensors {
  Tensor codes;       // i8 (rows, columns), -127 … 127
  Tensor magnitudes;  // f32 (rows), the largest magnitude in each row
  static EightBitTensors empty(std::int64_t rows, std::int64_t columns, const Stream& stream);
};

/// values = code · magnitude of the row · 1/127, in f32 or bf16. Bit-identical on every device.
void dequantize_eight_bit(const Tensor& values, const EightBitTensors& from, const Stream& stream);

// MXFP4: 4-bit floating point (a sign, two exponent bits, one fraction bit) in blocks of 32, each
// scaled by one power of two. Takes 0.531 bytes per number. Source: Open Compute Project 2023, "OCP
// Microscaling Formats (MX) Specification", version 1.0.

constexpr std::int64_t kMicroScalingBlock = 32;
/// The largest exponent for which all numbers of a block are finite.
constexpr std::uint8_t kMaxMicroScalingExponent = 252;
/// Returns 2^(exponent − 127), or NaN for exponent 255.
constexpr float micro_scaling_factor(std::uint8_t exponent) {
  const std::uint32_t bits = exponent == 0     ? 0x00400000u
                             : exponent == 255 ? 0x7FC00000u
                                               : std::uint32_t{exponent} << 23;
  return std::bit_cast<float>(bits);
}
constexpr std::array<float, 16> kMicroScalingValues{0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                    4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                    -2.0f, -3.0f, -4.0f, -6.0f};

/// A matrix whose number of columns is a multiple of kMicroScalingBlock.
struct MicroScalingTensors {
  /// u8 (rows, columns / 2); the lower half of a byte is the first of its two numbers.
  Tensor codes;
  Tensor exponents;  // u8 (rows, columns / 32)
  static MicroScalingTensors empty(std::int64_t rows, std::int64_t columns, const Stream& stream);
};

/// values (rows, columns) = code value · 2^(exponent − 127), exact from 2^-126 on, in f32 or bf16.
void dequantize_micro_scaling(const Tensor& values, const MicroScalingTensors& from,
                              const Stream& stream);

// Numbers quantized to 4 bits in bitsandbytes' format: blocks of 64 with one magnitude each, which
// is f32 (0.563 bytes per number), or quantized to one byte plus an offset, in blocks of 256 with
// one f32 scale (0.516 bytes per number). Source: Dettmers et al. 2023, "QLoRA", sections 3 and 4.

constexpr std::int64_t kFourBitBlock = 64, kFourBitLevelBlock = 256;

/// kNormal: NormalFloat 4, equally likely values of a normal distribution. kFloat: E2M1.
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

/// Values of the bytes in FourBitTensors::levels, ascending: a dynamic tree of seven decades.
extern const std::array<float, 256> kFourBitLevels;

struct FourBitTensors {
  Tensor codes;   // u8, two numbers per byte; the upper half is the first number
  Tensor levels;  // u8, one per block; undefined if the scales are the magnitudes
  Tensor scales;  // f32, one per kFourBitLevelBlock blocks, or per block
  float offset = 0;
  FourBitType type = FourBitType::kNormal;
  static FourBitTensors empty(std::int64_t count, FourBitType type, const Stream& stream);
};

/// values = the code's value · magnitude. The magnitude is the level's value · scale + offset, or
/// the scale if there are no levels. Products and sums are rounded to f32. values: f32 or bf16, of
/// any shape. Bit-identical on every device.
void dequantize_four_bit(const Tensor& values, const FourBitTensors& from, const Stream& stream);
/// Quantizes value / scale to the nearest code value; ties go to the smaller one. The scale of a
/// block is its largest magnitude. `to` must be kNormal without levels. values: f32, of any shape.
/// A block with a NaN or an infinity gets the scale NaN, so that the whole block dequantizes to
/// NaN. A block whose largest magnitude is subnormal becomes 0. Bit-identical on every device.
void quantize_four_bit(const FourBitTensors& to, const Tensor& values, const Stream& stream);

/// `count` rows of a matrix from row `first` on. `inputs` must be a multiple of kFourBitBlock.
struct FourBitRows {
  const FourBitTensors& tensors;
  std::int64_t first, count;
};

/// Computes columns [w.first, w.first + w.count) of y = x·wᵀ + bias + residual, for few rows of x,
/// without storing the dequantized w. x: (N, inputs), y, residual: (N, outputs), of one dtype, f32
/// or bf16; bias: (outputs) f32; residual (may be y) and bias may be undefined. Sums are f32. The
/// bits of a row of y do not depend on other rows. Throws ShapeMismatch.
void four_bit_linear(const Tensor& y, const Tensor& x, const FourBitRows& w, const Tensor& bias,
                     const Tensor& residual, const Stream& stream);

}  // namespace hybrid_trainer::kernels
