#include "kernels/generated/attention.h"

#include <algorithm>

#include "kernels/backend/dispatch.h"

namespace hybrid_trainer::kernels {

void rotate(const Tensor& x, RotatedHeads heads, const Tensor& table, std::int64_t first_position,
            const Tensor& positions, Rotation rotation, const Stream& stream) {
  const KernelCall call{"rotate", stream, Work::kElementwise};
  check_real(call, {"x", x}, 3);
  check_rank(call, {"table", table}, 2, DType::kF32);
  if (positions) check_shape(call, {"positions", positions}, {x.size(0), x.size(1)}, DType::kI32);
  const std::int64_t size = heads.size_or(table.size(1));
  if (first_position < 0 || first_position + x.size(1) > table.size(0) || table.size(1) % 2 != 0 ||
      heads.count < 0 || size < table.size(1) || heads.count * size > x.size(2)) {
    throw_mismatch(call, "x is ", x.shape().text(), " with first position ", first_position,
                   ", heads is ", heads.count, " of ", size, ", table is ", table.shape().text(),
                   "; want one table row per position, an even number of rotated "
                   "channels, and heads within the last dimension of x");
  }
  dispatch<cpu::rotate, cuda::rotate>(call, x, heads, table, first_position, positions, rotation);
}

namespace {

std::int64_t head_size_of(const KernelCall& call, const Tensor& qkv, int rank,
                          const AttentionSpec& spec) {
  check_real(call, {"qkv", qkv}, rank);
  const std::int64_t width = qkv.size(rank - 1);
  require(spec.scale >= 0 && spec.cap >= 0 && spec.window >= 0,
          "attention: want scale, cap and window of at least 0");
  if (spec.keys < 1 || spec.queries < 1 || spec.queries % spec.keys != 0 ||
      width % spec.all() != 0) {
    throw_mismatch(call, "qkv is ", qkv.shape().text(), ", got ", spec.queries, " query heads and ",
                   spec.keys,
                   " key heads; want a last dimension of (queries + 2·keys)·head_size, "
                   "and query heads that are a multiple of the key heads");
  }
  if (spec.sinks) check_shape(call, {"sinks", spec.sinks}, {spec.queries}, DType::kF32);
  return width / spec.all();
}

void check_pattern(const AttentionSpec& spec, std::int64_t length) {
  const BlockPattern& pattern = spec.pattern;
  if (!pattern.is_on()) return;
  require(pattern.local >= 1 && pattern.global >= 0 && pattern.random >= 0 && !spec.bidirectional,
          "attention: a block pattern needs at least 1 local block, no negative number of blocks, "
          "and causal attention");
  require((length / pattern.block + 1) * (pattern.random + 1) < BlockPattern::kNone,
          "attention: the block pattern has too many random blocks; want larger blocks or fewer "
          "random ones");
}

void check_bias(const KernelCall& call, const AttentionSpec& spec, std::int64_t length) {
  const Tensor& bias = spec.bias;
  if (!bias) return;
  check_rank(call, {"bias", bias}, 2);
  check_shape(call, {"bias", bias}, {spec.queries, bias.size(1)}, DType::kF32);
  if (bias.size(1) % 2 == 1 && bias.size(1) >= 2 * length - 1) return;
  throw_mismatch(call, "bias is ", bias.shape().text(), ", sequences have ", length,
                 " tokens; want an odd number of distances, at least ", 2 * length - 1);
}

void check_log_sum_exp(const KernelCall& call, const Tensor& log_sum_exp, const Tensor& q,
                       const AttentionSpec& spec) {
  check_shape(call, {"log_sum_exp", log_sum_exp}, {q.size(0), spec.queries, q.size(1)},
              DType::kF32);
}

/// Checks all arguments of attention over whole sequences except log_sum_exp.
void check_attention(const KernelCall& call, const Tensor& y, const Tensor& qkv,
                     const Tensor& positions, const AttentionSpec& spec) {
  const std::int64_t channels = spec.queries * head_size_of(call, qkv, 3, spec);
  check_shape(call, {"y", y}, {qkv.size(0), qkv.size(1), channels}, qkv.dtype());
  check_pattern(spec, qkv.size(1));
  check_bias(call, spec, qkv.size(1));
  check_optional_shape(call, {"positions", positions}, {qkv.size(0), qkv.size(1)}, DType::kI32);
}

/// Returns the number of (query, key) pairs of a sequence that the pattern includes.
double pairs_seen(const BlockPattern& pattern, std::int64_t time) {
  double pairs = 0;
  for (std::int64_t begin = 0; begin < time; begin += pattern.block) {
    const auto queries = static_cast<double>(std::min<std::int64_t>(pattern.block, time - begin));
    const int blocks = pattern.visible_blocks(static_cast<std::int32_t>(begin / pattern.block));
    pairs += queries * (static_cast<double>(blocks - 1) * pattern.block + queries / 2);
  }
  return pairs;
}

void check_heads(const KernelCall& call, const Tensor& q, const Tensor& kv, int rank,
                 const AttentionSpec& spec) {
  check_real(call, {"q", q}, rank);
  check_real(call, {"kv", kv}, 3);
  require(spec.scale >= 0 && spec.cap >= 0, "cross_attention: want scale and cap of at least 0");
  require(spec.window == 0 && !spec.pattern.is_on() && !spec.sinks && !spec.bias,
          "cross_attention: windows, patterns, sinks and score biases are not supported");
  const std::int64_t width = q.size(rank - 1);
  const bool fits = spec.keys >= 1 && spec.queries >= 1 && spec.queries % spec.keys == 0 &&
                    width % spec.queries == 0 && q.dtype() == kv.dtype() &&
                    kv.size(2) == width / spec.queries * 2 * spec.keys;
  if (fits) return;
  throw_mismatch(call, "q is ", q.shape().text(), " ", name_of(q.dtype()), ", kv is ",
                 kv.shape().text(), " ", name_of(kv.dtype()), ", got ", spec.queries,
                 " query heads and ", spec.keys,
                 " key heads; want last dimensions of queries·head_size and "
                 "2·keys·head_size, and the same dtype");
}

void check_lengths(const KernelCall& call, const Tensor& lengths, const Tensor& kv) {
  if (lengths) check_shape(call, {"lengths", lengths}, {kv.size(0)}, DType::kI32);
}

void check_sequences(const KernelCall& call, const Tensor& q, const Tensor& kv) {
  if (q.size(0) == kv.size(0)) return;
  throw_mismatch(call, "q is ", q.shape().text(), ", kv is ", kv.shape().text(),
                 "; want the same number of sequences in both");
}

}  // namespace

double visible_keys(const AttentionSpec& spec, std::int64_t time) {
  const auto all = static_cast<double>(time), most = static_cast<double>(spec.window);
  const double one_way =
      spec.window == 0 || spec.window >= time ? all / 2 : most - most * most / (2 * all);
  if (spec.pattern.is_on()) return std::min(one_way, pairs_seen(spec.pattern, time) / all);
  return spec.bidirectional ? 2 * one_way : one_way;
}

void attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                       const Tensor& positions, AttentionSpec spec, const Stream& stream) {
  const KernelCall call{"attention_forward", stream, Work::kAttention};
  check_attention(call, y, qkv, positions, spec);
  if (log_sum_exp) check_log_sum_exp(call, log_sum_exp, qkv, spec);
  dispatch_with_workspace<cpu::attention_forward, cuda::attention_forward>(call, y, log_sum_exp,
                                                                           qkv, positions, spec);
}

void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                        const Tensor& log_sum_exp, const Tensor& qkv, const Tensor& positions,
                        AttentionSpec spec, const Stream& stream) {
  const KernelCall call{"attention_backward", stream, Work::kAttention};
  check_attention(call, y, qkv, positions, spec);
  check_matching(call, {{"qkv", qkv}, {"dqkv", dqkv}});
  check_matching(call, {{"y", y}, {"dy", dy}});
  check_log_sum_exp(call, log_sum_exp, qkv, spec);
  dispatch_with_workspace<cpu::attention_backward, cuda::attention_backward>(
      call, dqkv, dy, y, log_sum_exp, qkv, positions, spec);
}

void attention_bias_backward(const Tensor& dbias, GradientMode mode, const Tensor& dy,
                             const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                             const Tensor& positions, AttentionSpec spec, const Stream& stream) {
  const KernelCall call{"attention_bias_backward", stream, Work::kAttention};
  check_attention(call, y, qkv, positions, spec);
  check_matching(call, {{"y", y}, {"dy", dy}});
  require(spec.bias.defined(), "attention_bias_backward: the spec has no bias");
  check_matching(call, {{"bias", spec.bias}, {"dbias", dbias}});
  check_log_sum_exp(call, log_sum_exp, qkv, spec);
  dispatch_with_workspace<cpu::attention_bias_backward, cuda::attention_bias_backward>(
      call, dbias, mode, dy, y, log_sum_exp, qkv, positions, spec);
}

void attention_sinks_backward(const Tensor& dsinks, GradientMode mode, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& sinks,
                              const Stream& stream) {
  const KernelCall call{"attention_sinks_backward", stream, Work::kAttention};
  check_rank(call, {"sinks", sinks}, 1, DType::kF32);
  check_matching(call, {{"sinks", sinks}, {"dsinks", dsinks}});
  check_real(call, {"y", y}, 3);
  check_matching(call, {{"y", y}, {"dy", dy}});
  const std::int64_t heads = sinks.size(0);
  check_shape(call, {"log_sum_exp", log_sum_exp}, {y.size(0), heads, y.size(1)}, DType::kF32);
  if (y.size(2) % heads != 0)
    throw_mismatch(call, "y is ", y.shape().text(), ", sinks is ", sinks.shape().text(),
                   "; want one sink per head");
  dispatch<cpu::attention_sinks_backward, cuda::attention_sinks_backward>(call, dsinks, mode, dy, y,
                                                                          log_sum_exp, sinks);
}

void store_keys_values(const Tensor& key_cache, const Tensor& value_cache, const Tensor& qkv,
                       const Stream& stream) {
  const KernelCall call{"store_keys_values", stream, Work::kAttention};
  check_real(call, {"qkv", qkv}, 3);
  check_rank(call, {"key_cache", key_cache}, 3);
  check_shape(call, {"key_cache", key_cache},
              {qkv.size(0), key_cache.size(1), std::min(key_cache.size(2), qkv.size(2) / 3)});
  check_matching(call, {{"key_cache", key_cache}, {"value_cache", value_cache}});
  check_dtype(call, {"key_cache", key_cache}, qkv.dtype());
  if (qkv.size(1) > key_cache.size(1))
    throw_mismatch(call, "qkv is ", qkv.shape().text(), ", key_cache is ", key_cache.shape().text(),
                   "; want a cache with at least the rows of qkv");
  dispatch<cpu::store_keys_values, cuda::store_keys_values>(call, key_cache, value_cache, qkv);
}

void attention_decode(const Tensor& y, const Tensor& key_cache, const Tensor& value_cache,
                      const Tensor& qkv, const Tensor& texts, const Tensor& positions,
                      AttentionSpec spec, const Stream& stream) {
  const KernelCall call{"attention_decode", stream, Work::kAttention};
  require(!spec.bidirectional,
          "attention: bidirectional attention cannot generate token by token, because each new "
          "token changes the results of earlier tokens");
  const std::int64_t head_size = head_size_of(call, qkv, 2, spec);
  check_pattern(spec, key_cache.size(1));
  check_bias(call, spec, key_cache.size(1));
  check_shape(call, {"y", y}, {qkv.size(0), spec.queries * head_size});
  check_rank(call, {"key_cache", key_cache}, 3);
  check_shape(call, {"key_cache", key_cache},
              {key_cache.size(0), key_cache.size(1), spec.keys * head_size});
  check_matching(call, {{"key_cache", key_cache}, {"value_cache", value_cache}});
  check_dtype(call, {"key_cache", key_cache}, qkv.dtype());
  check_dtype(call, {"y", y}, qkv.dtype());
  check_shape(call, {"texts", texts}, {qkv.size(0)}, DType::kI32);
  check_shape(call, {"positions", positions}, {qkv.size(0)}, DType::kI32);
  dispatch_with_workspace<cpu::attention_decode, cuda::attention_decode>(
      call, y, key_cache, value_cache, qkv, texts, positions, spec);
}

void cross_attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                             const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                             const Stream& stream) {
  const KernelCall call{"cross_attention_forward", stream, Work::kAttention};
  check_heads(call, q, kv, 3, spec);
  check_sequences(call, q, kv);
  check_matching(call, {{"q", q}, {"y", y}});
  check_lengths(call, lengths, kv);
  if (log_sum_exp) check_log_sum_exp(call, log_sum_exp, q, spec);
  dispatch_with_workspace<cpu::cross_attention_forward, cuda::cross_attention_forward>(
      call, y, log_sum_exp, q, kv, lengths, spec);
}

void cross_attention_backward(const Tensor& dq, const Tensor& dkv, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                              const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                              const Stream& stream) {
  const KernelCall call{"cross_attention_backward", stream, Work::kAttention};
  check_heads(call, q, kv, 3, spec);
  check_sequences(call, q, kv);
  check_matching(call, {{"q", q}, {"dq", dq}, {"y", y}, {"dy", dy}});
  check_matching(call, {{"kv", kv}, {"dkv", dkv}});
  check_lengths(call, lengths, kv);
  check_log_sum_exp(call, log_sum_exp, q, spec);
  dispatch_with_workspace<cpu::cross_attention_backward, cuda::cross_attention_backward>(
      call, dq, dkv, dy, y, log_sum_exp, q, kv, lengths, spec);
}

void cross_attention_decode(const Tensor& y, const Tensor& q, const Tensor& kv, const Tensor& texts,
                            std::int64_t texts_per_source, const Tensor& lengths,
                            AttentionSpec spec, const Stream& stream) {
  const KernelCall call{"cross_attention_decode", stream, Work::kAttention};
  check_heads(call, q, kv, 2, spec);
  check_matching(call, {{"q", q}, {"y", y}});
  check_shape(call, {"texts", texts}, {q.size(0)}, DType::kI32);
  require(texts_per_source >= 1, "cross_attention_decode: want at least 1 text per source");
  check_lengths(call, lengths, kv);
  dispatch_with_workspace<cpu::cross_attention_decode, cuda::cross_attention_decode>(
      call, y, q, kv, texts, texts_per_source, lengths, spec);
}

}  // namespace hybrid_trainer::kernels
