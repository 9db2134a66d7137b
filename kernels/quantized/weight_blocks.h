#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

// Weights in the block formats of llama.cpp's model files: rows of blocks, each with scales and
// codes of a few bits. Source: ggml, ggml-common.h and ggml-quants.c.

enum class BlockFormat { kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K, kMXFP4 };
constexpr int kBlockFormats = 9;

struct BlockSize {
  std::int64_t numbers, bytes;
};
constexpr BlockSize block_size(BlockFormat format) {
  constexpr BlockSize kSizes[kBlockFormats] = {{32, 34},   {32, 18},   {32, 20},
                                               {32, 22},   {32, 24},   {256, 144},
                                               {256, 176}, {256, 210}, {32, 17}};
  return kSizes[static_cast<int>(format)];
}

/// Returns an MXFP4 block's scale, half of 2^(exponent − 127), because codes are in units of 1/2.
constexpr float micro_scale(std::uint8_t exponent) {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1u) << 23);
}

/// Consecutive rows of a matrix. A block of zero bytes represents zeros.
struct BlockTensors {
  Tensor bytes;  // u8, consecutive rows
  BlockFormat format = BlockFormat::kQ8_0;
  /// Returns uninitialized tensors for (rows, columns), with whole blocks.
  static BlockTensors empty(std::int64_t rows, std::int64_t columns, BlockFormat format,
                            const Stream& stream);
};

/// Decodes whole blocks on the host, in ggml's order of operations.
void decode_blocks(BlockFormat format, const std::byte* from, std::span<float> values);

/// values = the decoded blocks. values: (rows, columns) f32 or bf16. Bit-identical on every device.
void dequantize_blocks(const Tensor& values, const BlockTensors& from, const Stream& stream);

/// y[n] = row indices[n] of the matrix. y: (N, columns) f32 or bf16; indices: (N) i32. CPU only.
/// Throws DataError if an index is not a row of the matrix.
void gather_block_rows(const Tensor& y, const Tensor& indices, const BlockTensors& from,
                       const Stream& stream);

/// `count` rows of a matrix (outputs, inputs) in blocks.
struct BlockRows {
  std::int64_t count;
  BlockTensors tensors;
};

/// y = x·wᵀ + bias + residual, as in llama.cpp: x is rounded to 8 bits in blocks of w's size, codes
/// are multiplied as integers, and block sums are scaled and added in f32. w: rows that cover all
/// outputs in order. x: (N, inputs); y, residual: (N, outputs), of one dtype, f32 or bf16; bias:
/// (outputs) f32; residual (may be y) and bias may be undefined. The bits of a row do not depend on
/// other rows or the machine; NaN or infinity in x makes it NaN. CPU only. Throws ShapeMismatch.
void block_linear(const Tensor& y, const Tensor& x, std::span<const BlockRows> w,
                  const Tensor& bias, const Tensor& residual, const Stream& stream);

}  // namespace hybrid_trainer::kernels
