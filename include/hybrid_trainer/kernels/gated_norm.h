#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

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

}  // namespace hybrid_trainer::kernels
