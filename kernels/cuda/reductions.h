#pragma once

#include <span>

#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

void dot(Cuda cuda, const Tensor& result, std::span<const Tensor> x, std::span<const Tensor> y);
void mean(Cuda cuda, const Tensor& result, const Tensor& x);

}  // namespace hybrid_trainer::kernels
