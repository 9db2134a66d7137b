#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// losses[n] = −log softmax(logits[n])[targets[n]] over the first `vocabulary` columns; and, where
/// `gradient_scale` is not 0, logits become their own gradient in place: (softmax −
/// onehot)·gradient_scale, 0 in the padding columns. logits: (N, padded vocabulary) f32 or bf16.
/// targets: (N) i32, in [0, vocabulary), or kNoTarget, of which loss and gradient are 0: any other
/// throws DataError on a processor and gives the loss NaN on CUDA. losses: (N) f32. Sums in f32.
void softmax_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                           std::int64_t vocabulary, float gradient_scale, const Stream& stream);

/// Targets that are smoothed: each shares ε of its weight among all columns of the vocabulary.
struct SmoothedTargets {
  std::int64_t vocabulary = 0;
  float smoothing = 0;  // ε, at least 0 and below 1
};

/// softmax_cross_entropy of smoothed targets, as PyTorch's label_smoothing: losses[n] = (1 − ε)·loss of
/// the target + ε·mean of the losses of all columns of the vocabulary; the gradient is (softmax − (1 −
/// ε)·onehot − ε/vocabulary)·gradient_scale. Without smoothing, the same bits.
void smoothed_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                            const SmoothedTargets& spec, float gradient_scale,
                            const Stream& stream);

/// Bytes of logits that are best computed at a time. On a processor 512 rows of GPT-2 in bf16, 256
/// in f32: more saves little of the additions to the table's gradient. On CUDA 8192 and 4096: each
/// chunk reads and writes the whole of that gradient, which is 309 MB of GPT-2 124M.
std::int64_t logits_chunk_bytes(const Stream& stream);

}  // namespace hybrid_trainer::kernels
