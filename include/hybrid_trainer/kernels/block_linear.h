#pragma once

#include <span>

#include "hybrid_trainer/kernels/weight_blocks.h"

namespace hybrid_trainer::kernels {

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
