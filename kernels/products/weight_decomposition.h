#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

// Decomposes the rows of blocks (see DiagonalBlocks) into magnitudes and directions. Source: Liu et
// al. 2024, "DoRA: weight-decomposed low-rank adaptation", section 4.

/// norms[i] = ‖row i of x‖. x: (R, C) f32, norms: (R) f32.
void row_norms(const Tensor& norms, const Tensor& x, const Stream& stream);

/// factors[o] = the row's magnitude / norms[o], or 1 for rows outside all blocks. magnitudes:
/// (blocks.stacked_rows()) f32; factors, norms: (O) f32.
void magnitude_factors(const Tensor& factors, const Tensor& magnitudes, const Tensor& norms,
                       const DiagonalBlocks& blocks, const Stream& stream);

/// stacked = or += wide / norms, for rows in blocks; undefined norms count as 1.
void gather_rows(const Tensor& stacked, const Tensor& wide, const Tensor& norms,
                 const DiagonalBlocks& blocks, GradientMode mode, const Stream& stream);

/// y = x·factors + bias + residual, column by column. x, y, residual: (N, O) of one dtype, f32 or
/// bf16; y may be x or residual. factors, bias: (O) f32. bias and residual may be undefined.
void scale_columns(const Tensor& y, const Tensor& x, const Tensor& factors, const Tensor& bias,
                   const Tensor& residual, const Stream& stream);

/// y = x·z, element by element. All three tensors have one dtype, f32 or bf16, and may alias.
void multiply(const Tensor& y, const Tensor& x, const Tensor& z, const Stream& stream);

}  // namespace hybrid_trainer::kernels
