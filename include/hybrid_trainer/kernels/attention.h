#pragma once

#include <cmath>
#include <limits>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Block-sparse pattern of causal attention over the positions of a row. Query block i attends to
/// key blocks i − local + 1 to i, to the first `global` blocks, and to one hashed block in each of
/// `random` equal parts of the blocks between them. Source: Zaheer et al. 2020, "Big Bird", which
/// instead selects all random blocks from one set.
struct BlockPattern {
  std::int32_t block = 0;  // positions per block; 0: dense attention
  std::int32_t local = 1, global = 0, random = 0;
  std::uint32_t key = 0;  // random key, different for each layer

  static constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();

  constexpr bool is_on() const { return block > 0; }
  constexpr bool attends(std::int32_t head, std::int32_t i, std::int32_t j) const {
    return next_visible(head, i, j) == j;
  }
  /// Returns the first key block >= j that query block i attends to, or kNone.
  constexpr std::int32_t next_visible(std::int32_t head, std::int32_t i, std::int32_t j) const {
    if (j > i) return kNone;
    const std::int32_t first_local = i - local + 1, others = first_local - global;
    if (j < global || j >= first_local || random >= others) return j;
    const std::int32_t at = j - global;
    for (std::int32_t part = at * random / others; part < random; ++part) {  // at most twice
      const std::int32_t drawn = drawn_of(head, i, part, others);
      if (drawn >= at) return drawn + global;
    }
    return first_local;
  }
  /// Returns the number of key blocks that query block i attends to.
  constexpr std::int32_t visible_blocks(std::int32_t i) const {
    const std::int32_t first_local = i < local ? 0 : i - local + 1;
    const std::int32_t others = first_local < global ? 0 : first_local - global;
    return i + 1 - (others > random ? others - random : 0);
  }

 private:
  /// Returns the block selected from part `part` of the blocks between the global and the local
  /// blocks.
  constexpr std::int32_t drawn_of(std::int32_t head, std::int32_t i, std::int32_t part,
                                  std::int32_t others) const {
    const std::int32_t begin = (part * others + random - 1) / random,
                       end = ((part + 1) * others + random - 1) / random;
    const auto choices = static_cast<std::uint64_t>(end - begin);
    return begin + static_cast<std::int32_t>(random_word(head, i, part) * choices >> 32);
  }
  /// Returns a hash. Used instead of philox because it needs fewer registers in attention kernels.
  /// Source: Wellons 2018, "Prospecting for hash functions" (lowbias32).
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

enum class Rotation { kForward, kBackward };  // by the angle, or by its negative

/// Number and size of the leading heads of a row that rotate() rotates.
struct RotatedHeads {
  RotatedHeads(std::int64_t count_, std::int64_t size_ = 0, bool pairs_are_adjacent_ = false)
      : count(count_), size(size_), pairs_are_adjacent(pairs_are_adjacent_) {}
  std::int64_t count;
  std::int64_t size;  // channels per head, of which the first R (the table's width) rotate; 0: R
  bool pairs_are_adjacent;  // channels 2j and 2j + 1 form a pair, instead of j and j + R/2
  std::int64_t size_or(std::int64_t turned) const { return size > 0 ? size : turned; }
};

/// Rotates the first R channels of the leading heads of each row of x in place (RoPE). Pairs
/// channel u of the first half of R with v of the second, or adjacent channels: (u, v) becomes
/// (u·c − v·s, v·c + u·s) with cosine c and sine s of the row's position. kBackward uses −s, for the
/// gradient of x. x: (B, T, any) f32 or bf16; positions: (B, T) i32, or undefined for
/// first_position, first_position + 1, …; table: (max T, R) f32, a row's cosines, then its sines.
/// Computes in f32 and rounds once. Source: Su et al. 2021, in the pairing of transformers.
void rotate(const Tensor& x, RotatedHeads heads, const Tensor& table, std::int64_t first_position,
            const Tensor& positions, Rotation rotation, const Stream& stream);

/// Attention settings. H query heads share K key/value heads: query head h reads key/value head
/// ⌊h/(H/K)⌋ (Ainslie et al. 2023, "GQA").
struct AttentionSpec {
  AttentionSpec(int all) : queries(all), keys(all) {}  // H = K
  AttentionSpec(int query_heads, int kv_heads) : queries(query_heads), keys(kv_heads) {}
  int queries;
  int keys;
  float scale = 0;          // factor of the scores; 0: 1/√head_size
  float cap = 0;            // c: scaled scores s become c·tanh(s/c) (Gemma 2); 0: no cap
  std::int64_t window = 0;  // keys per query, including the query's own key; 0: all previous keys
  bool bidirectional = false;  // queries also attend to later keys
  BlockPattern pattern{};      // further restricts the keys; causal only
  /// Attention sinks (gpt-oss), (H) f32 or undefined: each adds e^sink to the sum of e^score.
  Tensor sinks{};
  AttentionSpec with_sinks(const Tensor& values) const {
    AttentionSpec spec = *this;
    spec.sinks = values;
    return spec;
  }
  /// Relative position bias, (H, 2·R − 1) f32 with R >= T, or undefined. Adds element R − 1 + j − i
  /// to query i's scaled score for key j, before the cap (Raffel et al. 2020). Self-attention only.
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

/// Returns the mean number of keys per query over a sequence of `time` tokens.
double visible_keys(const AttentionSpec& spec, std::int64_t time);

/// Self-attention, causal unless spec.bidirectional, with an online softmax over key blocks. qkv:
/// (B, T, (H + 2·K)·head_size) f32 or bf16: all queries, then keys, then values, head h at
/// h·head_size. y: (B, T, H·head_size). log_sum_exp: (B, H, T) f32, over scores and sink, for
/// backward, or undefined. positions: (B, T) i32, each token's index in its document, which
/// restricts queries to their document; undefined: one document. Skips fully masked key blocks, so
/// use pattern blocks of a multiple of 64 keys. CUDA throws Error for head sizes above 256.
/// Accumulates in f32. Source: Dao et al. 2022, algorithm 1.
void attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                       const Tensor& positions, AttentionSpec spec, const Stream& stream);

/// dqkv = the gradient of qkv. dy: shaped like y. y, log_sum_exp: results of forward. Recomputes
/// attention weights block by block. Sums in a fixed order. Source: Dao et al. 2022, algorithm 4.
void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                        const Tensor& log_sum_exp, const Tensor& qkv, const Tensor& positions,
                        AttentionSpec spec, const Stream& stream);

/// dsinks (+)= the gradient of spec.sinks, (H) f32: −Σ e^(sink − log_sum_exp)·⟨dy, y⟩ per head,
/// summed over sequences and queries in a fixed order. Other arguments: see attention_backward.
void attention_sinks_backward(const Tensor& dsinks, GradientMode mode, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& sinks,
                              const Stream& stream);

/// dbias (+)= the gradient of spec.bias: the scores' gradients summed along diagonals in a fixed
/// order. Recomputes the scores; needs B·H·(2·R − 1) floats of workspace. See attention_backward.
void attention_bias_backward(const Tensor& dbias, GradientMode mode, const Tensor& dy,
                             const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                             const Tensor& positions, AttentionSpec spec, const Stream& stream);

/// Copies keys and values of qkv (B, T, any) to rows [0, T) of the caches (B, max_T, K·head_size).
void store_keys_values(const Tensor& key_cache, const Tensor& value_cache, const Tensor& qkv,
                       const Stream& stream);

/// Decoding step of causal attention: one new token of each of N texts attends to its text's cache.
/// key_cache, value_cache: (texts, max_T, K·head_size). qkv: (N, (H + 2·K)·head_size); row n is the
/// token at positions[n] of text texts[n], and its key and value are first written to the cache.
/// texts, positions: (N) i32. Throws ShapeMismatch if they are outside of the caches; CUDA does not
/// check this. Each text must occur at most once (unchecked). y: (N, H·head_size); the bits of a
/// row do not depend on other rows. Throws Error if the spec is bidirectional.
void attention_decode(const Tensor& y, const Tensor& key_cache, const Tensor& value_cache,
                      const Tensor& qkv, const Tensor& texts, const Tensor& positions,
                      AttentionSpec spec, const Stream& stream);

/// Cross attention of queries to all keys of another sequence, with an online softmax. q: (B, T,
/// H·head_size) f32 or bf16. kv: (B, S, 2·K·head_size), all keys, then all values. lengths: (B)
/// i32, keys per example, or undefined for S. Throws ShapeMismatch if one is not in [0, S]
/// (unchecked on CUDA). Without keys, y is 0. y: shaped like q. spec: only heads, scale and cap;
/// throws Error for windows, patterns and sinks. CUDA throws Error for head sizes above 256.
/// Accumulates in f32.
void cross_attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                             const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                             const Stream& stream);

/// dq, dkv = the gradients of q and kv, 0 for keys beyond a length. Sums in a fixed order.
void cross_attention_backward(const Tensor& dq, const Tensor& dkv, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                              const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                              const Stream& stream);

/// Decoding step of cross attention for one new token of each of N texts. q, y: (N, H·head_size).
/// kv: (sources, S, 2·K·head_size). texts: (N) i32; text n reads source n / texts_per_source.
/// lengths: (sources) i32 or undefined. The bits of a row do not depend on other rows. Throws
/// ShapeMismatch for invalid texts or lengths (unchecked on CUDA).
void cross_attention_decode(const Tensor& y, const Tensor& q, const Tensor& kv, const Tensor& texts,
                            std::int64_t texts_per_source, const Tensor& lengths,
                            AttentionSpec spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
