#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hybrid_trainer/kernels/attention.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {

/// Shape of a cross-attention and the number of keys of each sequence.
struct CrossCase {
  std::int64_t batch, queries, keys;
  int heads, kv_heads;
  std::int64_t head_size;
  Values lengths{};  // empty: all keys
  float scale = 0, cap = 0;
  AttentionSpec spec() const {
    AttentionSpec all(heads, kv_heads);
    all.scale = scale;
    all.cap = cap;
    return all;
  }
  Shape rows() const { return {batch, queries, heads * head_size}; }
  Shape key_rows() const { return {batch, keys, 2 * kv_heads * head_size}; }
  Tensor counts(const Stream& stream) const {
    return lengths.empty() ? Tensor() : tensor_of(lengths, {batch}, DType::kI32, stream);
  }
  std::int64_t keys_of(std::int64_t b) const {
    return lengths.empty() ? keys : static_cast<std::int64_t>(lengths[static_cast<std::size_t>(b)]);
  }
  std::string text(DType dtype) const {
    return concat("B ", batch, " T ", queries, " S ", keys, " H ", heads, " of ", kv_heads,
                  " head ", head_size, lengths.empty() ? "" : " lengths ", name_of(dtype),
                  " scale ", scale, " cap ", cap);
  }
};

/// Odd sizes, groups, lengths, scales and caps, drawn from the number of the case.
inline CrossCase random_cross_case(std::uint64_t number) {
  std::uint64_t draws = 0;
  const auto below = [&](std::uint64_t bound) {
    return static_cast<std::int64_t>(random_below({number, 7, 0}, draws++, bound));
  };
  CrossCase c{.batch = 1 + below(3),
              .queries = 1 + below(below(4) == 0 ? 150 : 40),
              .keys = 1 + below(below(4) == 0 ? 300 : 60),
              .heads = 1,
              .kv_heads = static_cast<int>(1 + below(3)),
              .head_size = below(3) == 0 ? 32 * (1 + below(2)) : 1 + below(40)};
  c.heads = c.kv_heads * static_cast<int>(1 + below(3));
  if (below(2) == 0)
    for (std::int64_t b = 0; b < c.batch; ++b)
      c.lengths.push_back(static_cast<double>(below(static_cast<std::uint64_t>(c.keys) + 1)));
  if (below(3) == 0) c.scale = 0.3f;
  if (below(4) == 0) c.cap = 1.5f;
  return c;
}

struct CrossTensors {
  CrossTensors(const CrossCase& c, DType dtype, const Stream& stream)
      : q(random_tensor(c.rows(), dtype, 1, stream)),
        kv(random_tensor(c.key_rows(), dtype, 2, stream)),
        lengths(c.counts(stream)),
        y(empty_like(q, stream)),
        log_sum_exp(Tensor::empty({c.batch, c.heads, c.queries}, DType::kF32,
                                  MemoryKind::kActivations, stream)),
        dy(random_tensor(c.rows(), dtype, 3, stream)),
        dq(empty_like(q, stream)),
        dkv(empty_like(kv, stream)),
        spec(c.spec()) {}
  static Tensor empty_like(const Tensor& of, const Stream& stream) {
    return Tensor::empty_like(of, MemoryKind::kActivations, stream);
  }
  void forward(const Stream& stream) const {
    cross_attention_forward(y, log_sum_exp, q, kv, lengths, spec, stream);
  }
  void backward(const Stream& stream) const {
    cross_attention_backward(dq, dkv, dy, y, log_sum_exp, q, kv, lengths, spec, stream);
  }
  Tensor q, kv, lengths, y, log_sum_exp, dy, dq, dkv;
  AttentionSpec spec;
};

}  // namespace hybrid_trainer::kernels
