#pragma once

#include "hybrid_trainer/kernels/attention.h"

namespace hybrid_trainer::kernels {

/// Attention of queries on keys and values of another sequence, as of a decoder on what its encoder
/// made of a source, with a streaming softmax: no (T, S) array exists. Each query sees all keys.
/// q: (B, T, H·head_size) f32 or bf16. kv: (B, S, 2·K·head_size), rows hold all keys, then all values,
/// head k of each at k·head_size. lengths: (B) i32, how many first keys of a row there are, 0 to S
/// (else throws ShapeMismatch; CUDA does not check it); undefined: all S. A query without keys gets
/// y = 0. y: as q. log_sum_exp: (B, H, T) f32, of scores, kept for backward; undefined where not
/// wanted. spec: heads, scale and cap; windows, patterns and sinks are refused. Any T, S and head
/// size, on CUDA up to 256 (else throws Error). Sums in f32.
void cross_attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                             const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                             const Stream& stream);

/// dq, dkv = the gradients of q and kv, 0 for keys beyond a row's length. dy, y: as y above,
/// log_sum_exp: (B, H, T) from forward. Each is summed in a fixed order.
void cross_attention_backward(const Tensor& dq, const Tensor& dkv, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                              const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                              const Stream& stream);

/// The same of a new token of each of N texts, for generation. q: (N, H·head_size). kv: (sources, S,
/// 2·K·head_size). texts: (N) i32, each row's text. Text n reads source n / texts_per_source, so that
/// those of a beam search share one. lengths: (sources) i32 or undefined. Texts and lengths are checked
/// as above. y: (N, H·head_size); on each device a row has the same bits whatever rows are beside it.
void cross_attention_decode(const Tensor& y, const Tensor& q, const Tensor& kv, const Tensor& texts,
                            std::int64_t texts_per_source, const Tensor& lengths,
                            AttentionSpec spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
