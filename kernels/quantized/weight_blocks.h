#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

// Weights as model files of llama.cpp hold them: rows of blocks, each with its scales beside its codes of
// a few bits. Source: ggml, ggml-common.h and ggml-quants.c.

/// Blocks of 32 numbers, and superblocks (K) of 256.
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

/// Half of 2^(exponent − 127), the scale of a block of MXFP4, whose codes are halves too.
constexpr float micro_scale(std::uint8_t exponent) {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1u) << 23);
}

/// Consecutive rows of a matrix. Blocks of zero bytes stand for zeros.
struct BlockTensors {
  Tensor bytes;  // u8, rows one after the other
  BlockFormat format = BlockFormat::kQ8_0;
  /// For (rows, columns), without values; columns are whole blocks.
  static BlockTensors empty(std::int64_t rows, std::int64_t columns, BlockFormat format,
                            const Stream& stream);
};

/// What whole blocks on the host stand for, in ggml's order of operations.
void decode_blocks(BlockFormat format, const std::byte* from, std::span<float> values);

/// values = what the blocks stand for. values: (rows, columns) f32 or bf16. Bit-identical on every
/// device.
void dequantize_blocks(const Tensor& values, const BlockTensors& from, const Stream& stream);

/// y[n] = the row of that number. y: (N, columns) f32 or bf16; indices: (N) i32. On a processor alone.
/// Throws DataError for an index outside the rows.
void gather_block_rows(const Tensor& y, const Tensor& indices, const BlockTensors& from,
                       const Stream& stream);

/// So many rows of a matrix (outputs, inputs) in blocks.
struct BlockRows {
  std::int64_t count;
  BlockTensors tensors;
};

/// y = x·wᵀ + bias + residual, as llama.cpp multiplies: x is rounded to 8 bits in blocks of w's size,
/// codes are multiplied as integers, and the sums of blocks are scaled and added up in f32. w: rows one
/// under the other, all outputs. x: (N, inputs), whole blocks; y: (N, outputs), bias: (outputs) f32 or
/// undefined, residual: (N, outputs) or undefined (may be y itself); x, residual, y of one dtype, f32 or
/// bf16. A row of y has the same bits whatever rows are beside it, with any instruction set and number
/// of threads; it is NaN where x has a NaN or an infinity. On a processor alone. Throws ShapeMismatch.
void block_linear(const Tensor& y, const Tensor& x, std::span<const BlockRows> w,
                  const Tensor& bias, const Tensor& residual, const Stream& stream);

}  // namespace hybrid_trainer::kernels
