#pragma once

#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

void embedding_forward(Cuda cuda, const Tensor& y, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, std::int64_t first_position);
void embedding_backward(Cuda cuda, const Tensor& dtoken_table, GradientMode token_mode,
                        const Tensor& dposition_table, GradientMode position_mode, const Tensor& dy,
                        const Tensor& tokens);

}  // namespace hybrid_trainer::kernels
