#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// losses[n] = −log softmax(logits[n])[targets[n]] over the first `vocabulary` columns; and, where
/// `gradient_scale` is not 0, logits become their own gradient in place: (softmax −
/// onehot)·gradient_scale, 0 in the padding columns. logits: (N, padded vocabulary) f32 or bf16.
/// targets: (N) i32, in [0, vocabulary): any other throws DataError on a processor and gives the
/// loss NaN on CUDA. losses: (N) f32. Sums in f32.
void softmax_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                           std::int64_t vocabulary, float gradient_scale, const Stream& stream);

}  // namespace hybrid_trainer::kernels
