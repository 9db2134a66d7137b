#pragma once

#include <array>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

enum class Transpose { kNo, kYes };
/// Whether a result overwrites the output or is added to it.
enum class GradientMode { kOverwrite, kAccumulate };

/// C (+)= op(A)·op(B). op(A): (M, K), op(B): (K, N), C: (M, N); f32 or bf16, A and B of one dtype;
/// C of the same dtype, or f32 for bf16 inputs. Accumulates in f32. On a CPU without bf16 products,
/// bf16 inputs are first converted to f32 in the workspace. Throws ShapeMismatch.
void matmul(const Tensor& c, const Tensor& a, Transpose transpose_a, const Tensor& b,
            Transpose transpose_b, GradientMode mode, const Stream& stream);

/// Maximum number of rows of x for which the CPU kernel reads w only once. Up to this size, the
/// bits of a row of x·wᵀ do not depend on other rows.
inline constexpr std::int64_t kFewRows = 16;

/// y = x·wᵀ + bias + residual. x: (N, I), I >= 1, w: (O, I), bias: (O) f32 or undefined, residual:
/// (N, O), may be y, or undefined. Others of one dtype, f32 or bf16. Throws ShapeMismatch.
void linear_forward(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& residual, const Stream& stream);

/// pre_activation = x·wᵀ + bias, active = gelu(pre_activation). x: (N, I); w: (O, I); bias: (O) f32
/// or undefined; active: (N, O); pre_activation: (N, O) or undefined. All but bias have one dtype,
/// f32 or bf16. CUDA applies GELU before rounding to `pre_activation`. Throws ShapeMismatch.
void linear_gelu_forward(const Tensor& active, const Tensor& pre_activation, const Tensor& x,
                         const Tensor& w, const Tensor& bias, const Stream& stream);

/// dpre_activation = (dy·w) ⊙ gelu'(pre_activation). dy: (N, O), w: (O, I),
/// pre_activation, dpre_activation: (N, I), all of one dtype, f32 or bf16. Throws ShapeMismatch.
void linear_gelu_backward_input(const Tensor& dpre_activation, const Tensor& dy, const Tensor& w,
                                const Tensor& pre_activation, const Stream& stream);

/// dx = dy·w. dy: (N, O), w: (O, I), dx: (N, I).
void linear_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w,
                           const Stream& stream);

/// dw (+)= dyᵀ·x. dy: (N, O), x: (N, I), dw: (O, I) f32, or bf16 like dy and x.
void linear_backward_weight(const Tensor& dw, const Tensor& dy, const Tensor& x, GradientMode mode,
                            const Stream& stream);

/// dbias (+)= column sums of dy. dy: (N, O), dbias: (O) f32. Sums in a fixed order.
void bias_backward(const Tensor& dbias, const Tensor& dy, GradientMode mode, const Stream& stream);

/// Calls linear_backward_weight and bias_backward, or on CUDA, if possible, one fast kernel.
void linear_backward_parameters(const Tensor& dw, const Tensor& dbias, const Tensor& dy,
                                const Tensor& x, GradientMode mode, const Stream& stream);

/// Layout of blocks of `rank` columns in a wide matrix: block p occupies rows [first_row[p],
/// first_row[p] + rows[p]) and columns [p·rank, (p+1)·rank); all else is 0. The stacked matrix
/// contains the blocks one below the other.
struct DiagonalBlocks {
  static constexpr int kMax = 4;
  int count = 0;
  std::int64_t rank = 0;
  std::array<std::int64_t, kMax> first_row{}, rows{};

  std::int64_t columns() const { return count * rank; }
  std::int64_t stacked_rows() const {
    std::int64_t sum = 0;
    for (int p = 0; p < count; ++p) sum += rows[static_cast<std::size_t>(p)];
    return sum;
  }
};

/// Scatters scale·stacked (f32) to wide, (O, blocks.columns()) f32 or bf16.
void spread_blocks(const Tensor& wide, const Tensor& stacked, const DiagonalBlocks& blocks,
                   float scale, const Stream& stream);

/// stacked (+)= scale · the blocks of wide. Both are f32.
void gather_blocks(const Tensor& stacked, const Tensor& wide, const DiagonalBlocks& blocks,
                   float scale, GradientMode mode, const Stream& stream);

}  // namespace hybrid_trainer::kernels
