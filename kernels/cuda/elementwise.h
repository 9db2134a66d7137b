#pragma once

#include "hybrid_trainer/kernels/elementwise.h"
#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

void add(Cuda cuda, const Tensor& y, const Tensor& x, const Tensor& z);
void move_along(Cuda cuda, const Tensor& y, const Tensor& from, float a, const Tensor& direction);
void scale(Cuda cuda, const Tensor& y, const Tensor& x, float a);
void normalize(Cuda cuda, const Tensor& y, const Tensor& x, const Tensor& squares, double floor);
void cast(Cuda cuda, const Tensor& y, const Tensor& x);
void gelu_forward(Cuda cuda, const Tensor& y, const Tensor& x);
void gelu_backward(Cuda cuda, const Tensor& dx, const Tensor& dy, const Tensor& x);
void dropout(Cuda cuda, const Tensor& y, const Tensor& x, float p, const DropoutNumbers& numbers);

}  // namespace hybrid_trainer::kernels
