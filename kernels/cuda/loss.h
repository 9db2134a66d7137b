#pragma once

#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

void softmax_cross_entropy(Cuda cuda, const Tensor& losses, const Tensor& logits,
                           const Tensor& targets, std::int64_t vocabulary, float gradient_scale);

}  // namespace hybrid_trainer::kernels
