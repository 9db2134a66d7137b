#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Computes the layer norm of each row: y = (x − mean)/√(variance + epsilon)·weight + bias. x, y:
/// (N, C) f32 or bf16. weight, bias: (C) f32. mean, rstd: (N) f32, which backward reads; may be
/// undefined. Accumulates in f32. Source: Ba et al. 2016, eq. 4.
void layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, float epsilon,
                        const Stream& stream);

/// dx (+)= the gradient of x (`input_mode`). dweight, dbias (+)= the gradients of weight and bias
/// (`parameter_mode`), summed in a fixed order.
void layer_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                         const Tensor& dbias, GradientMode parameter_mode, const Tensor& dy,
                         const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, const Stream& stream);

struct RmsNormSpec {
  float epsilon;
  bool one_plus = false;  // the gain is 1 + weight
};

/// Computes the RMS norm of each row: y = x/√(mean of x² + epsilon)·gain. x, y: (N, C) f32 or bf16.
/// weight: (C) f32. rstd: (N) f32, which backward reads; may be undefined. Accumulates in f32.
/// Source: Zhang & Sennrich 2019, eq. 4. Rounds the quotient to y's dtype before it multiplies by
/// weight, like transformers' LlamaRMSNorm, but not before it multiplies by 1 + weight, like
/// Gemma2RMSNorm.
void rms_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                      RmsNormSpec spec, const Stream& stream);

/// Gradients of rms_norm_forward; arguments: see layer_norm_backward.
void rms_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                       GradientMode parameter_mode, const Tensor& dy, const Tensor& x,
                       const Tensor& rstd, const Tensor& weight, RmsNormSpec spec,
                       const Stream& stream);

struct HeadRange {
  std::int64_t first;
  std::int64_t count;
};

/// Applies rms_norm_forward in place to each head in `heads` of x. x: (B, T, any) f32 or bf16.
/// weight: (head size) f32.
void rms_norm_heads_forward(const Tensor& x, HeadRange heads, const Tensor& weight,
                            RmsNormSpec spec, const Stream& stream);

/// Replaces the output gradients of the heads in dx by the gradients of x. x: input of forward.
/// dweight: see layer_norm_backward.
void rms_norm_heads_backward(const Tensor& dx, const Tensor& dweight, GradientMode parameter_mode,
                             const Tensor& x, HeadRange heads, const Tensor& weight,
                             RmsNormSpec spec, const Stream& stream);

struct GatedNormSpec {
  float epsilon = 1e-5f;
  std::int64_t groups = 1;  // equal, separately normalized parts of a row
  bool norm_first = false;  // norm(x)·silu(gate) instead of norm(x·silu(gate))
};

/// Computes the gated RMS norm: y = norm(x·silu(gate)), or norm(x)·silu(gate) if `norm_first`;
/// norm(v) = v/√(mean of v² + epsilon)·weight over groups of C/groups columns. x, y: (N, C); gate:
/// columns [first, first + C); f32 or bf16. weight: (C) f32, or (C/groups) shared by groups. Rounds
/// the quotient before multiplying, like Mamba2 and Qwen3-Next. Source: Dao & Gu 2024, figure 6.
void gated_norm_forward(const Tensor& y, const Tensor& x, const Tensor& gate, std::int64_t first,
                        const Tensor& weight, GatedNormSpec spec, const Stream& stream);

/// Writes the gradient of x to dx, which may be dy, and the gradient of gate to columns [first,
/// first + C) of dgate. dweight (+)= the gradient of weight (`mode`), f32, summed in a fixed order.
void gated_norm_backward(const Tensor& dx, const Tensor& dgate, const Tensor& dweight,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& gate,
                         std::int64_t first, const Tensor& weight, GatedNormSpec spec,
                         const Stream& stream);

/// Computes the group norm: y = (x − mean)/√(variance + epsilon)·weight + bias with the mean and
/// the variance over all positions of an example and the channels of a group. x, y: (B, places, C)
/// f32 or bf16. weight, bias: (C) f32. mean, rstd: (B, groups) f32, which backward reads; may be
/// undefined. The order of the sums depends only on the sizes. Source: Wu & He 2018, eq. 1 and 7.
void group_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, std::int64_t groups,
                        float epsilon, const Stream& stream);

/// Writes the gradient of x to dx, which may be dy. dweight, dbias (+)= the gradients of weight and
/// bias (`mode`), f32, summed in a fixed order. mean, rstd: from forward.
void group_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& rstd, const Tensor& weight, const Stream& stream);

}  // namespace hybrid_trainer::kernels
