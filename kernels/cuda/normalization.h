#pragma once

#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

void layer_norm_forward(Cuda cuda, const Tensor& y, const Tensor& mean, const Tensor& rstd,
                        const Tensor& x, const Tensor& weight, const Tensor& bias);
void layer_norm_backward(Cuda cuda, const Tensor& dx, GradientMode input_mode,
                         const Tensor& dweight, const Tensor& dbias, GradientMode parameter_mode,
                         const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight);

}  // namespace hybrid_trainer::kernels
