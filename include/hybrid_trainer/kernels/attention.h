#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// Causal self-attention with a streaming softmax over blocks of keys: no (T, T) array exists. qkv:
/// (B, T, 3·C) f32 or bf16, rows hold query, key and value of C = H·head_size each, head h at
/// h·head_size. y: (B, T, C). log_sum_exp: (B, H, T) f32, kept for backward; undefined where not
/// wanted. Scale is 1/√head_size. Any T and head size, on CUDA up to 256 (else throws Error). Sums
/// in f32. Source: Dao et al. 2022, algorithm 1.
void attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv, int heads,
                       const Stream& stream);

/// dqkv = the gradient of qkv. dy, y: (B, T, C), log_sum_exp: (B, H, T) from forward. Recomputes
/// the attention weights block by block. Each head's gradient is summed in a fixed order. Source:
/// Dao et al. 2022, algorithm 4.
void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                        const Tensor& log_sum_exp, const Tensor& qkv, int heads,
                        const Stream& stream);

/// Copies keys and values of qkv (B, T, 3·C) to rows [0, T) of the caches (B, max_T, C).
void store_keys_values(const Tensor& key_cache, const Tensor& value_cache, const Tensor& qkv,
                       const Stream& stream);

/// Attention of one new position against a cache, for generation. qkv: (B, 3·C) of the new token at
/// `position`; its key and value are first written to row `position` of the caches. key_cache,
/// value_cache: (B, max_T, C). y: (B, C).
void attention_decode(const Tensor& y, const Tensor& key_cache, const Tensor& value_cache,
                      const Tensor& qkv, std::int64_t position, int heads, const Stream& stream);

}  // namespace hybrid_trainer::kernels
