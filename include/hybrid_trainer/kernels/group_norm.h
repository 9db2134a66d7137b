#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

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
