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

}  // namespace hybrid_trainer::kernels
