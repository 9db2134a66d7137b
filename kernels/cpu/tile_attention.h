#pragma once

#include "kernels/cpu/attention_pass.h"

namespace hybrid_trainer::kernels::cpu {

/// Whether the processor's products of bf16 take the attention: bf16, and heads and a pattern's blocks
/// of whole panels.
bool fits_tiles(const AttentionSizes& sizes, DType dtype);

/// forward_attention and backward_attention by matrix tiles (AMX) or vectors of bf16 pairs: products of
/// bf16 with sums in f32, weights rounded to bf16. A head is computed by one thread.
void attention_forward_by_tiles(const Tensor& y, const Tensor& log_sum_exp,
                                const AttentionOperands& from, const AttentionSizes& sizes,
                                const Stream& stream);
void attention_backward_by_tiles(const AttentionOperands& gradients,
                                 const AttentionResults& results, const AttentionOperands& from,
                                 const AttentionSizes& sizes, const Stream& stream);

}  // namespace hybrid_trainer::kernels::cpu
