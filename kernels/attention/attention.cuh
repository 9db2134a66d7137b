// Declarations shared by the two families of attention kernels: one uses tensor cores and supports
// common shapes in bf16, the other supports all shapes without tensor cores.

#pragma once

#include "hybrid_trainer/kernels/attention.h"
#include "kernels/backend/elements.cuh"

namespace hybrid_trainer::kernels::cuda {

/// Final state of a query's streaming softmax, computed from its highest score, the sum of e^(score
/// − highest) and the sink (-∞ if there is none). `factor` scales the sum of e^(score −
/// highest)·value.
struct SoftmaxResult {
  __device__ SoftmaxResult(float highest, float total, float sink) {
    const float most = fmaxf(highest, sink), share = expf(highest - most);
    const float all = total * share + expf(sink - most);
    log_sum_exp = most + logf(all);
    factor = share / all;
  }
  float log_sum_exp, factor;
};

/// Sizes of self-attention, from rows of qkv, and offsets of the rows of a head. An item is a query
/// head of a sequence; heads that share keys and values are adjacent.
struct AttentionSizes {
  AttentionSizes(const Tensor& qkv, const Tensor& places, const AttentionSpec& spec)
      : items(qkv.size(0) * spec.queries),
        length(qkv.size(1)),
        heads(spec.queries),
        group(spec.group()),
        stride(qkv.size(2)),
        head_size(stride / spec.all()),
        channels(heads * head_size),
        key_channels(spec.keys * head_size),
        window(spec.window < length ? spec.window : 0),
        positions(optional_data<std::int32_t>(places)),
        sinks(optional_data<float>(spec.sinks)),
        scale(score_scale(spec, head_size)),
        cap(spec.cap),
        bidirectional(spec.bidirectional),
        pattern(spec.pattern) {}
  std::int64_t items;
  std::int64_t length;
  std::int64_t heads;  // query heads
  std::int64_t group;  // query heads that share a key and value head
  std::int64_t stride;
  std::int64_t head_size;
  std::int64_t channels;          // channels of y
  std::int64_t key_channels;      // channels of all key heads; the offset from keys to values
  std::int64_t window;            // 0: unlimited
  const std::int32_t* positions;  // (B, T), or null
  const float* sinks;             // (H), or null
  float scale;
  float cap;
  bool bidirectional;
  BlockPattern pattern;

  /// Returns whether attention is causal over all earlier keys, with uncapped scores.
  bool plain() const {
    return window == 0 && positions == nullptr && cap == 0 && !bidirectional && !pattern.is_on();
  }
  /// Returns the first key that a query of an item attends to. Never decreases with the query.
  __device__ std::int64_t first_key(std::int64_t item, std::int64_t query) const {
    if (query >= length) query = length - 1;
    std::int64_t first = window > 0 ? query - window + 1 : 0;
    if (positions != nullptr) {
      const std::int64_t start = query - positions[item / heads * length + query];
      if (start > first) first = start;
    }
    return first > 0 ? first : 0;
  }
  /// Returns whether a query attends to a key. The key is not later than the query and at least
  /// `first`, the query's first_key; or, if bidirectional, it is later and a query at the key's
  /// position would attend to this query's position.
  __device__ bool attends(std::int64_t item, std::int64_t query, std::int64_t first,
                          std::int64_t key) const {
    if (key <= query) return key >= first;
    return bidirectional && key < length && first_key(item, key) <= query;
  }

  __device__ int head_of(std::int64_t item) const {
    return static_cast<int>(static_cast<unsigned int>(item) % static_cast<unsigned int>(heads));
  }
  /// Returns the first key of [key, end) in a pattern block that at least one of the `queries`
  /// queries starting at `query` attends to; `end` if there is none.
  __device__ int next_key(int head, int query, int queries, int key, int end) const {
    if (!pattern.is_on()) return key;
    const int rows = static_cast<int>(length);
    const int last = query + queries < rows ? query + queries - 1 : rows - 1;
    int next = (end - 1) / pattern.block + 1;
#pragma unroll 1
    for (int i = query / pattern.block; i <= last / pattern.block; ++i) {
      const int seen = pattern.next_visible(head, i, key / pattern.block);
      if (seen < next) next = seen;
    }
    const int found = next * pattern.block;
    return found < key ? key : found < end ? found : end;
  }
  /// Returns whether the pattern lets `query` attend to `key`. The answer is the same for all pairs
  /// of a tile inside one block of the pattern.
  __device__ bool attends_tile(unsigned int item, int query, int key) const {
    if (!pattern.is_on()) return true;
    return pattern.attends(head_of(item), query / pattern.block, key / pattern.block);
  }
  /// Returns whether the pattern masks every pair in a tile of kRows queries and kRows keys.
  template <int kRows>
  __device__ bool masks_tile(std::int64_t item, std::int64_t first_query,
                             std::int64_t first_key) const {
    if (!pattern.is_on()) return false;
    const int key = static_cast<int>(first_key), end = key + kRows;
    return next_key(head_of(item), static_cast<int>(first_query), kRows, key, end) == end;
  }
  __device__ float sink_of(unsigned int item) const {
    return sinks == nullptr ? -INFINITY : sinks[item % static_cast<unsigned int>(heads)];
  }

  /// Return the offset in qkv and dqkv of row 0 of an item's queries, or of its keys.
  __device__ std::int64_t queries_at(std::int64_t item) const {
    return item / heads * length * stride + item % heads * head_size;
  }
  __device__ std::int64_t keys_at(std::int64_t item) const {
    return item / heads * length * stride + channels + item % heads / group * head_size;
  }
  /// Returns the offset of an item's row 0 in y and dy.
  __device__ std::int64_t y_at(std::int64_t item) const {
    return item / heads * length * channels + item % heads * head_size;
  }
  __host__ __device__ std::int64_t blocks(std::int64_t rows) const {
    return (length + rows - 1) / rows;
  }
};

/// Sizes of separate operands: rows of queries, and rows of keys followed by values. In
/// self-attention both operands are qkv. Also contains the bias of the scores. This is a separate
/// type because the tensor-core kernels have no registers to spare for a larger AttentionSizes.
struct OperandSizes : AttentionSizes {
  OperandSizes(const AttentionSizes& own, const AttentionSpec& spec)
      : AttentionSizes(own),
        key_length(length),
        key_stride(stride),
        bias(optional_data<float>(spec.bias)),
        distances(spec.bias ? spec.bias.size(1) : 0) {}
  /// Cross-attention: queries q attend to the first `counts` keys and values of sequences in kv.
  OperandSizes(const Tensor& q, const Tensor& kv, const Tensor& counts, const AttentionSpec& spec)
      : AttentionSizes(q, Tensor(), spec),
        key_length(kv.size(1)),
        key_stride(kv.size(2)),
        lengths(optional_data<std::int32_t>(counts)),
        across(true) {
    head_size = stride / heads;
    channels = stride;
    key_channels = spec.keys * head_size;
    scale = score_scale(spec, head_size);
    bidirectional = false;
  }
  std::int64_t key_length, key_stride;
  const std::int32_t* lengths = nullptr;  // (B), number of keys, or null
  const float* bias = nullptr;            // (H, distances), or null
  std::int64_t distances = 0;
  bool across = false;  // cross-attention

  /// Returns the number of keys of an item in cross-attention.
  __device__ int count_of_keys(std::int64_t item) const {
    return lengths == nullptr ? static_cast<int>(key_length) : lengths[item / heads];
  }
  /// Returns the offset of row 0 of an item's keys in kv and dkv.
  __device__ std::int64_t keys_across_at(std::int64_t item) const {
    return item / heads * key_length * key_stride + item % heads / group * head_size;
  }
  /// Returns the bias of an item's scores, to be indexed by key − query. Requires a bias.
  __device__ const float* bias_of(std::int64_t item) const {
    return bias + head_of(item) * distances + distances / 2;
  }
  std::int64_t key_blocks(std::int64_t rows) const { return (key_length + rows - 1) / rows; }
};

/// Throws Error if the head is larger than these kernels support.
void check_head_size(const char* kernel, std::int64_t head_size);

/// Values that backward needs for each query, precomputed once: weight = 2^(score·log2(e) −
/// exponent), dscore = weight·(dweight − correction), and the first key that the query attends to.
/// Arrays have shape (items, padded length); queries from `length` on get weight 0.
struct QueryTerms {
  __device__ QueryTerms of(std::int64_t item) const {
    const std::int64_t at = item * padded;
    return {exponents + at, corrections + at, first_keys == nullptr ? nullptr : first_keys + at,
            padded};
  }
  float* exponents;
  float* corrections;
  std::int32_t* first_keys;  // null for plain attention
  std::int64_t padded;
};

class QueryTermsSpace {
 public:
  /// `has_bias` is whether scores have a bias; if so, the attention is not plain.
  QueryTermsSpace(const AttentionSizes& sizes, bool has_bias, const Stream& stream);
  /// exponent = log_sum_exp·log2(e), correction = sum of dy·y over the head.
  QueryTerms compute(const Tensor& dy, const Tensor& y, const Tensor& log_sum_exp,
                     const AttentionSizes& sizes, const Stream& stream) const;

 private:
  Tensor workspace_;
  QueryTerms terms_;
};

/// Rows of one head. Each begins `stride` elements after the previous one.
template <class T>
struct HeadRows {
  T* begin;
  std::int64_t stride;
};

/// Rows of queries and rows of keys followed by values, or the gradients of these rows. In
/// self-attention both are qkv.
struct AttentionOperands {
  const Tensor &queries, &keys;
};

/// Forward and backward attention for any head size up to 512.
void general_attention_forward(const Tensor& y, const Tensor& log_sum_exp,
                               const AttentionOperands& from, const OperandSizes& sizes,
                               const Stream& stream);
void general_attention_backward(const AttentionOperands& gradients, const Tensor& dy,
                                const QueryTerms& terms, const AttentionOperands& from,
                                const OperandSizes& sizes, const Stream& stream);

/// Attention on tensor cores. Requires bf16, head size 64, 128 or 256, and 16-byte aligned tensors.
void tensor_core_attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                                   const AttentionSizes& sizes, const Stream& stream);
void tensor_core_attention_backward(const Tensor& dqkv, const Tensor& dy, const QueryTerms& terms,
                                    const Tensor& qkv, const AttentionSizes& sizes,
                                    const Stream& stream);

/// Returns the number of blocks for joint_attention_backward, which computes all gradients in one
/// pass, or 0 if the two kernels of tensor_core_attention_backward are faster. The joint kernel
/// computes 5 products instead of 7, but needs one block for all queries and keys of a key head.
/// Therefore it requires head size 64, enough blocks to occupy the device for at least 3/4 of the
/// time, and a workspace of at most 256 MiB. The result depends only on sizes and the number of
/// multiprocessors. The joint kernel and the two kernels produce bit-identical gradients.
std::int64_t joint_attention_blocks(const AttentionSizes& sizes, const Stream& stream);
void joint_attention_backward(const Tensor& dqkv, const Tensor& dy, const QueryTerms& terms,
                              const Tensor& qkv, std::int64_t blocks, const AttentionSizes& sizes,
                              const Stream& stream);

}  // namespace hybrid_trainer::kernels::cuda
