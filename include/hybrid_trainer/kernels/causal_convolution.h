#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

struct ConvolutionSpec {
  bool silu = true;        // y = silu of the sum; else the sum
  std::int64_t ahead = 0;  // taps that look at tokens after a token's own; 0: causal
};
inline constexpr std::int64_t kMostTaps = 16;

/// Convolution along the tokens, each channel by itself: y[t, c] = silu(bias[c] + Σ_τ weight[c, τ]·
/// x[t − K + 1 + ahead + τ, first + c]). x: (B, T, any), of which columns [first, first + C) are
/// read; y: (B, T, C); both f32 or bf16, of one dtype. weight: (C, K) f32, K at most kMostTaps; bias:
/// (C) f32 or undefined. before: (B, K − 1 − ahead, C) of x's dtype, the rows before the first, or
/// undefined: zeros. positions: (B, T) i32, each token's place in its document, or undefined where a
/// sequence is one document: a tap reads tokens of its own document alone, and those of `before`
/// where the first token's position says that its document began there. Sums in f32.
void causal_convolution_forward(const Tensor& y, const Tensor& x, std::int64_t first,
                                const Tensor& weight, const Tensor& bias, const Tensor& before,
                                const Tensor& positions, ConvolutionSpec spec,
                                const Stream& stream);

/// Columns [first, first + C) of dx = the gradient of those of x; the others stay. dweight, dbias
/// (+)= theirs as `mode` says, f32, summed in a fixed order; undefined where not wanted. dbefore: as
/// `before`, overwritten; undefined where not wanted. The sum before silu is computed again.
void causal_convolution_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                 GradientMode mode, const Tensor& dbefore, const Tensor& dy,
                                 const Tensor& x, std::int64_t first, const Tensor& weight,
                                 const Tensor& bias, const Tensor& before, const Tensor& positions,
                                 ConvolutionSpec spec, const Stream& stream);

/// One token of each of N texts, for generation; causal. x: (N, any), y: (N, C), state: (texts, K −
/// 1, C) of x's dtype, the last rows of each text, to which these join. texts: (N) i32, each text
/// once, which nothing checks. A row has the same bits whatever rows are beside it.
void causal_convolution_step(const Tensor& y, const Tensor& state, const Tensor& x,
                             std::int64_t first, const Tensor& weight, const Tensor& bias,
                             const Tensor& texts, ConvolutionSpec spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
