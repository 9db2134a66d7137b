#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// y = (x − mean)/√(variance + epsilon)·weight + bias, row by row.
/// x, y: (N, C) f32 or bf16. weight, bias: (C) f32. mean, rstd: (N) f32, kept for backward;
/// undefined where not wanted. Sums in f32. Source: Ba et al. 2016, eq. 4.
void layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, float epsilon,
                        const Stream& stream);

/// dx (+)= the gradient of x; dweight, dbias (+)= theirs as `parameter_mode` says, summed in a
/// fixed order. `input_mode` kAccumulate adds to dx, which then holds the gradient of the residual
/// stream.
void layer_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                         const Tensor& dbias, GradientMode parameter_mode, const Tensor& dy,
                         const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, const Stream& stream);

struct RmsNormSpec {
  float epsilon;
  bool one_plus = false;  // the gain is 1 + weight
};

/// y = x/√(mean of x² + epsilon)·gain, row by row. x, y: (N, C) f32 or bf16. weight: (C) f32. rstd:
/// (N) f32, kept for backward; undefined where not wanted. Sums in f32. Source: Zhang & Sennrich
/// 2019, eq. 4; the quotient is rounded to y's dtype before it is multiplied by a plain gain, not
/// before 1 + weight, as in transformers' LlamaRMSNorm and Gemma2RMSNorm.
void rms_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                      RmsNormSpec spec, const Stream& stream);

/// Gradients of rms_norm, written as layer_norm_backward writes them.
void rms_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                       GradientMode parameter_mode, const Tensor& dy, const Tensor& x,
                       const Tensor& rstd, const Tensor& weight, RmsNormSpec spec,
                       const Stream& stream);

/// Heads [first, first + count) of each row.
struct HeadRange {
  std::int64_t first;
  std::int64_t count;
};

/// These heads of x in place as by rms_norm_forward, each a row. x: (B, T, any) f32 or bf16. weight:
/// (head size) f32.
void rms_norm_heads_forward(const Tensor& x, HeadRange heads, const Tensor& weight,
                            RmsNormSpec spec, const Stream& stream);

/// dx, which holds the gradients of the results, becomes that of x in these heads; x: before
/// forward. dweight as in layer_norm_backward.
void rms_norm_heads_backward(const Tensor& dx, const Tensor& dweight, GradientMode parameter_mode,
                             const Tensor& x, HeadRange heads, const Tensor& weight,
                             RmsNormSpec spec, const Stream& stream);

struct GatedNormSpec {
  float epsilon = 1e-5f;
  std::int64_t groups = 1;  // equal parts of a row, each normed by itself
  bool norm_first = false;  // norm(x)·silu(gate) instead of norm(x·silu(gate))
};

/// y = norm(x·silu(gate)), or norm(x)·silu(gate) where `norm_first`; norm(v) = v/√(mean of v² +
/// epsilon)·weight over each group of C/groups columns. x, y: (N, C); gate: (N, any), of which columns
/// [first, first + C) are read; all f32 or bf16, of one dtype. weight: (C) f32, or (C/groups), which
/// all groups share. Sums in f32; the quotient is rounded to x's dtype before it is multiplied by
/// weight, as in transformers' Mamba2 and Qwen3-Next. Source: Dao & Gu 2024, figure 6.
void gated_norm_forward(const Tensor& y, const Tensor& x, const Tensor& gate, std::int64_t first,
                        const Tensor& weight, GatedNormSpec spec, const Stream& stream);

/// dx = the gradient of x; columns [first, first + C) of dgate = that of the gate, the others stay.
/// dweight (+)= its gradient as `mode` says, f32, summed in a fixed order. dx may be dy. The norm's
/// statistics are computed again.
void gated_norm_backward(const Tensor& dx, const Tensor& dgate, const Tensor& dweight,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& gate,
                         std::int64_t first, const Tensor& weight, GatedNormSpec spec,
                         const Stream& stream);

/// y = (x − mean)/√(variance + epsilon)·weight + bias. Mean and variance are those of an example, over all
/// places and the channels of one of `groups` equal groups. x, y: (B, places, C) f32 or
/// bf16. weight, bias: (C) f32. mean, rstd: (B, groups) f32, kept for backward; undefined where not
/// wanted. The bits depend on the sizes alone. Source: Wu & He 2018, eq. 1 and 7.
void group_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, std::int64_t groups,
                        float epsilon, const Stream& stream);

/// dx = the gradient of x; dweight, dbias (+)= theirs as `mode` says, f32, summed in a fixed order. dx
/// may be dy. mean, rstd: of forward.
void group_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& rstd, const Tensor& weight, const Stream& stream);

}  // namespace hybrid_trainer::kernels
