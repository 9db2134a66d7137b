#pragma once

#include "kernels/cpu/attention_blocks.h"

namespace hybrid_trainer::kernels::cpu {

/// Whether the processor's matrix tiles take the attention: bf16, and heads and a pattern's blocks of
/// whole panels.
bool fits_tiles(const AttentionSizes& sizes, DType dtype);

/// attention_forward and attention_backward by matrix tiles (AMX): products of bf16 with sums in
/// f32, weights rounded to bf16. A head is computed by one thread.
void attention_forward_by_tiles(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                                const AttentionSizes& sizes, const Stream& stream);
void attention_backward_by_tiles(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                                 const Tensor& log_sum_exp, const Tensor& qkv,
                                 const AttentionSizes& sizes, const Stream& stream);

}  // namespace hybrid_trainer::kernels::cpu
