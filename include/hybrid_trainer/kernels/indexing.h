#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// y[b, t] = token_table[tokens[b, t]] + position_table[first_position + t].
/// tokens: (B, T) i32. token_table: (V, C), position_table: (max T, C), y: (B, T, C), all of one
/// dtype. Throws DataError that names the first token outside [0, V).
void embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, std::int64_t first_position,
                       const Stream& stream);

/// dtoken_table[tokens[b, t]] += dy[b, t]; dposition_table[t] (+)= sum over b of dy[b, t]. Tables
/// f32; dy f32 or bf16. kOverwrite clears a table first. Adds in the order of the tokens, so that
/// equal inputs give bit-identical results.
void embedding_backward(const Tensor& dtoken_table, GradientMode token_mode,
                        const Tensor& dposition_table, GradientMode position_mode, const Tensor& dy,
                        const Tensor& tokens, const Stream& stream);

}  // namespace hybrid_trainer::kernels
