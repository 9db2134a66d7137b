#pragma once

#include "hybrid_trainer/kernels/four_bit.h"

namespace hybrid_trainer::kernels {

/// Consecutive rows of a matrix (outputs, inputs), quantized by themselves; `inputs` is a multiple of
/// kFourBitBlock.
struct FourBitRows {
  const FourBitTensors& tensors;
  std::int64_t first, count;
};

/// y's columns [w.first, w.first + w.count) = x·wᵀ + bias + residual, for few rows of x, as in
/// generation: the codes are read once for four rows, on CUDA for eight, and no values of w are stored.
/// x: (N, inputs), y: (N, outputs), bias: (outputs) f32 or undefined, residual: (N, outputs) or
/// undefined (may be y itself). x, residual, y of one dtype, f32 or bf16. Values of w are f32, sums
/// too. A row of y has the same bits whatever rows are beside it. Throws ShapeMismatch.
void four_bit_linear(const Tensor& y, const Tensor& x, const FourBitRows& w, const Tensor& bias,
                     const Tensor& residual, const Stream& stream);

}  // namespace hybrid_trainer::kernels
