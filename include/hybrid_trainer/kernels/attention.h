#pragma once

#include <cmath>
#include <initializer_list>
#include <limits>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Which blocks of keys a block of queries sees in causal attention. Blocks count a row's positions,
/// also where it holds several documents. Block i of queries sees blocks i − local + 1 to i, the first
/// `global` ones, and `random` others: the blocks between are cut into as many equal parts, and of
/// each part one block is drawn, a function of key, head, i and part alone. Source: Zaheer et al. 2020,
/// "Big Bird", which draws from all of them together.
struct BlockPattern {
  std::int32_t block = 0;  // positions of a block; 0: no pattern, a query sees all keys
  std::int32_t local = 1, global = 0, random = 0;
  std::uint32_t key = 0;  // of the random numbers: each layer has another one

  static constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();

  constexpr bool is_on() const { return block > 0; }
  constexpr bool sees(std::int32_t head, std::int32_t i, std::int32_t j) const {
    return next_seen(head, i, j) == j;
  }
  /// The first block from j on that block i sees; kNone where there is none.
  constexpr std::int32_t next_seen(std::int32_t head, std::int32_t i, std::int32_t j) const {
    if (j > i) return kNone;
    const std::int32_t first_local = i - local + 1, others = first_local - global;
    if (j < global || j >= first_local || random >= others) return j;
    const std::int32_t at = j - global;
    for (std::int32_t part = at * random / others; part < random; ++part) {  // twice at most
      const std::int32_t drawn = drawn_of(head, i, part, others);
      if (drawn >= at) return drawn + global;
    }
    return first_local;
  }
  /// How many blocks block i sees.
  constexpr std::int32_t seen_by(std::int32_t i) const {
    const std::int32_t first_local = i < local ? 0 : i - local + 1;
    const std::int32_t others = first_local < global ? 0 : first_local - global;
    return i + 1 - (others > random ? others - random : 0);
  }

 private:
  /// Which one of `others` blocks between the global and the local ones is drawn of a part of them.
  constexpr std::int32_t drawn_of(std::int32_t head, std::int32_t i, std::int32_t part,
                                  std::int32_t others) const {
    const std::int32_t begin = (part * others + random - 1) / random,
                       end = ((part + 1) * others + random - 1) / random;
    const auto choices = static_cast<std::uint64_t>(end - begin);
    return begin + static_cast<std::int32_t>(random_word(head, i, part) * choices >> 32);
  }
  /// Fewer registers than philox takes: the kernels ask between tiles. Source: Wellons 2018, "Prospecting
  /// for hash functions" (lowbias32).
  constexpr std::uint32_t random_word(std::int32_t head, std::int32_t i, std::int32_t part) const {
    std::uint32_t word = key;
    for (const std::int32_t next : {head, i, part}) {
      word ^= static_cast<std::uint32_t>(next) * 0x9E3779B9u;
      word = (word ^ word >> 16) * 0x21F0AAADu;
      word = (word ^ word >> 15) * 0x735A2D97u;
      word ^= word >> 15;
    }
    return word;
  }
};

enum class Rotation { kForward, kBackward };  // by the angle, or back

/// The first heads of a row.
struct RotatedHeads {
  RotatedHeads(std::int64_t count_, std::int64_t size_ = 0) : count(count_), size(size_) {}
  std::int64_t count;
  std::int64_t size;  // channels of each, of which the table's first ones turn; 0: all turn
  std::int64_t size_or(std::int64_t turned) const { return size > 0 ? size : turned; }
};

/// Rotates the first R channels of the first heads of each row of x in place. u is in the first half of
/// the R, and v at its place in the second. With c and s of the row's position, (u, v) becomes (u·c −
/// v·s, v·c + u·s). kBackward, which is also the gradient, takes −s. x: (B, T, any) f32 or bf16, at
/// `positions` (B, T) i32, or where that is undefined first_position…; table: (max T, R) f32, cosines
/// in the first half of a row, sines in the second. In f32, rounded once. Source: Su et al. 2021, in
/// transformers' pairing.
void rotate(const Tensor& x, RotatedHeads heads, const Tensor& table, std::int64_t first_position,
            const Tensor& positions, Rotation rotation, const Stream& stream);

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
