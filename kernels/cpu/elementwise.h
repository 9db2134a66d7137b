#pragma once

#include "hybrid_trainer/kernels/elementwise.h"
#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

void add(Cpu cpu, const Tensor& y, const Tensor& x, const Tensor& z);
void move_along(Cpu cpu, const Tensor& y, const Tensor& from, float a, const Tensor& direction);
void scale(Cpu cpu, const Tensor& y, const Tensor& x, float a);
void normalize(Cpu cpu, const Tensor& y, const Tensor& x, const Tensor& squares, double floor);
void cast(Cpu cpu, const Tensor& y, const Tensor& x);
void gelu_forward(Cpu cpu, const Tensor& y, const Tensor& x);
void gelu_backward(Cpu cpu, const Tensor& dx, const Tensor& dy, const Tensor& x);
void dropout(Cpu cpu, const Tensor& y, const Tensor& x, float p, const DropoutNumbers& numbers);

}  // namespace hybrid_trainer::kernels
