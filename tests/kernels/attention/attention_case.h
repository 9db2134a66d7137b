#pragma once

#include <cmath>
#include <cstdint>

#include "hybrid_trainer/kernels/attention.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {

struct AttentionSizes {
  std::int64_t batch, length;
  int heads;
  std::int64_t head_size;
  int keys = 0;  // heads of keys and values; 0: same as heads
};

/// Options of an attention: scores, masks and additive terms.
struct AttentionRules {
  float scale = 0, cap = 0;
  std::int64_t window = 0;
  std::int64_t document = 0;  // sequence b has documents of document + b tokens; 0: one document
  bool bidirectional = false;
  bool has_sinks = false;
  BlockPattern pattern{};
  std::int64_t reach = 0;  // bias for distances below R = reach; 0: no bias
};

/// An attention case with reference functions for each query and key.
struct AttentionCase : AttentionSizes, AttentionRules {
  AttentionSpec counts() const {
    AttentionSpec spec(heads, kv_heads());
    spec.scale = scale;
    spec.cap = cap;
    spec.window = window;
    spec.bidirectional = bidirectional;
    spec.pattern = pattern;
    return spec;
  }
  /// counts() with the sinks of sinks().
  AttentionSpec counts(const Tensor& sinks) const { return counts().with_sinks(sinks); }
  /// One sink within the range of the scores, one above and one below, repeated for all heads.
  Tensor sinks(const Stream& stream) const {
    if (!has_sinks) return Tensor();
    Values values;
    for (int h = 0; h < heads; ++h) values.push_back(h % 3 == 0 ? 0.7 : h % 3 == 1 ? 9 : -30);
    return tensor_of(values, {heads}, DType::kF32, stream);
  }
  Tensor bias(const Stream& stream) const {
    return reach == 0 ? Tensor() : random_tensor({heads, 2 * reach - 1}, DType::kF32, 11, stream);
  }
  /// Index of the bias of a head's score.
  std::size_t bias_at(std::int64_t h, std::int64_t q, std::int64_t k) const {
    return static_cast<std::size_t>(h * (2 * reach - 1) + reach - 1 + k - q);
  }
  std::int64_t place(std::int64_t b, std::int64_t t) const { return t % (document + b); }
  Tensor positions(const Stream& stream) const {
    if (document == 0) return Tensor();
    Values values;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t t = 0; t < length; ++t) values.push_back(static_cast<double>(place(b, t)));
    }
    return tensor_of(values, {batch, length}, DType::kI32, stream);
  }
  bool attends(std::int64_t b, std::int64_t q, std::int64_t k) const {
    if (k > q) return bidirectional && attends(b, k, q);
    return (window == 0 || k > q - window) && (document == 0 || k >= q - place(b, q));
  }
  /// Whether the pattern hides a key from a query of a head.
  bool hides(std::int64_t head, std::int64_t q, std::int64_t k) const {
    return pattern.is_on() && !pattern.attends(static_cast<std::int32_t>(head),
                                               static_cast<std::int32_t>(q / pattern.block),
                                               static_cast<std::int32_t>(k / pattern.block));
  }
  /// End of the keys that query q may see.
  std::int64_t end(std::int64_t q) const { return bidirectional ? length : q + 1; }
  double score(double product, double added = 0) const {
    const double scaled =
        product * (scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(head_size))) + added;
    return cap > 0 ? cap * std::tanh(scaled / cap) : scaled;
  }
  std::int64_t channels() const { return heads * head_size; }
  int kv_heads() const { return keys == 0 ? heads : keys; }
  std::int64_t width() const { return (heads + 2 * kv_heads()) * head_size; }
  /// First column of the queries (part 0), keys or values that head h reads.
  std::int64_t column(std::int64_t h, std::int64_t part) const {
    if (part == 0) return h * head_size;
    return channels() + ((part - 1) * kv_heads() + h / (heads / kv_heads())) * head_size;
  }
};

}  // namespace hybrid_trainer::kernels
