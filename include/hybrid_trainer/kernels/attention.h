#pragma once

#include <cmath>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/block_pattern.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// H heads of queries and K of keys and values, which as many queries each share: head h reads those
/// of ⌊h/(H/K)⌋ (Ainslie et al. 2023, "GQA"); and which keys a query sees, and what it makes of them.
struct AttentionSpec {
  AttentionSpec(int all) : queries(all), keys(all) {}  // one number: as many of both
  AttentionSpec(int query_heads, int key_heads) : queries(query_heads), keys(key_heads) {}
  int queries;
  int keys;
  float scale = 0;          // of the scores; 0: 1/√head_size
  float cap = 0;            // c: scaled scores s become c·tanh(s/c) (Gemma 2); 0: as they are
  std::int64_t window = 0;  // keys that a query sees, its own among them; 0: all before it
  bool two_way = false;     // as many behind it, too: a key sees each query that sees it
  BlockPattern pattern{};   // of the keys that it would see else, those that it sees; not two ways
  /// (H) f32, of heads of queries: e^sink joins each query's sum of e^score, as of a key whose value
  /// is 0 (gpt-oss). Undefined: nothing does.
  Tensor sinks{};
  AttentionSpec with_sinks(const Tensor& values) const {
    AttentionSpec spec = *this;
    spec.sinks = values;
    return spec;
  }
  /// (H, 2·R − 1) f32, of heads of queries: element R − 1 + j − i is added to the scaled score of query
  /// i and key j, before a cap (Raffel et al. 2020, "T5"). R: as many as there are tokens, or more.
  /// Undefined: nothing is added. Not across sequences.
  Tensor bias{};
  AttentionSpec with_bias(const Tensor& values) const {
    AttentionSpec spec = *this;
    spec.bias = values;
    return spec;
  }
  int group() const { return queries / keys; }
  int all() const { return queries + 2 * keys; }
};

inline float score_scale(const AttentionSpec& spec, std::int64_t head_size) {
  return spec.scale > 0 ? spec.scale : 1.0f / std::sqrt(static_cast<float>(head_size));
}

/// Keys that a query sees, on average over a sequence of `time`.
double keys_seen(const AttentionSpec& spec, std::int64_t time);

/// Self-attention with a streaming softmax over blocks of keys: no (T, T) array exists. It is causal,
/// or two-way where the spec says so. qkv: (B, T, (H + 2·K)·head_size) f32 or bf16, rows hold all
/// queries, then all keys, then all values, head h of each at h·head_size. y: (B, T, H·head_size).
/// log_sum_exp: (B, H, T) f32, of scores and sink, kept for backward; undefined where not wanted.
/// positions: (B, T) i32, each token's place in its document, 0 where one begins, else one more than
/// the one before: queries see their own document alone; undefined where a sequence is one document.
/// Blocks of keys that no query of a block sees are skipped; for speed a pattern's have 64 keys or a
/// multiple. Any T and head size, on CUDA up to 256 (else throws Error). Sums in f32. Source: Dao et
/// al. 2022, algorithm 1.
void attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                       const Tensor& positions, AttentionSpec spec, const Stream& stream);

/// dqkv = the gradient of qkv. dy, y: as y above, log_sum_exp: (B, H, T) from forward. Recomputes
/// the attention weights block by block. Each head's gradient is summed in a fixed order, those of
/// keys and values over their queries. Source: Dao et al. 2022, algorithm 4.
void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                        const Tensor& log_sum_exp, const Tensor& qkv, const Tensor& positions,
                        AttentionSpec spec, const Stream& stream);

/// dsinks (+)= the gradient of spec.sinks, (H) f32: −Σ e^(sink − log_sum_exp)·⟨dy, y⟩ of each head,
/// over sequences and queries in a fixed order. dy, y, log_sum_exp: as in attention_backward.
void attention_sinks_backward(const Tensor& dsinks, GradientMode mode, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& sinks,
                              const Stream& stream);

/// dbias (+)= the gradient of spec.bias, (H, 2·R − 1) f32, from the other arguments of
/// attention_backward: the gradients of scores, summed along each diagonal of queries and keys in a
/// fixed order. Takes B·H·(2·R − 1) numbers of memory, and computes the scores again.
void attention_bias_backward(const Tensor& dbias, GradientMode mode, const Tensor& dy,
                             const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                             const Tensor& positions, AttentionSpec spec, const Stream& stream);

/// Copies keys and values, the last columns of qkv (B, T, any), to rows [0, T) of the caches (B,
/// max_T, K·head_size).
void store_keys_values(const Tensor& key_cache, const Tensor& value_cache, const Tensor& qkv,
                       const Stream& stream);

/// Causal attention of a new token of each of N texts against what is cached of that text, for
/// generation. Throws Error where the spec is two-way.
/// key_cache, value_cache: (texts, max_T, K·head_size). qkv: (N, (H + 2·K)·head_size), row n of the
/// token at positions[n] of text texts[n]; its key and value are first written to that row of the
/// text's caches. texts, positions: (N) i32, below those of the caches (else throws ShapeMismatch;
/// CUDA does not check it), each text once, which nothing checks. y: (N, H·head_size); on each
/// device a row has the same bits whatever rows are beside it.
void attention_decode(const Tensor& y, const Tensor& key_cache, const Tensor& value_cache,
                      const Tensor& qkv, const Tensor& texts, const Tensor& positions,
                      AttentionSpec spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
