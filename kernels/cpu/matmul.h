#pragma once

#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

void matmul(Cpu cpu, const Tensor& c, const Tensor& a, Transpose transpose_a, const Tensor& b,
            Transpose transpose_b, GradientMode mode);
void linear_forward(Cpu cpu, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& residual);
void linear_gelu_forward(Cpu cpu, const Tensor& active, const Tensor& wide, const Tensor& x,
                         const Tensor& w, const Tensor& bias);
void linear_gelu_backward_input(Cpu cpu, const Tensor& dwide, const Tensor& dy, const Tensor& w,
                                const Tensor& wide);
void bias_backward(Cpu cpu, const Tensor& dbias, const Tensor& dy, GradientMode mode);

}  // namespace hybrid_trainer::kernels
