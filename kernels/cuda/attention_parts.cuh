#pragma once

// What the attention kernels share, and their two families: with tensor cores for usual shapes in
// bf16, without for any.

#include <cmath>

#include "kernels/cuda/real.cuh"

namespace hybrid_trainer::kernels::cuda {

constexpr float kLog2E = 1.44269504f;
constexpr float kLogOf2 = 0.693147181f;

/// Sizes of self-attention, from qkv (B, T, 3·C), and where a head's rows begin. An item is a head
/// of a sequence.
struct AttentionSizes {
  AttentionSizes(const Tensor& qkv, int head_count)
      : items(qkv.size(0) * head_count),
        length(qkv.size(1)),
        heads(head_count),
        channels(qkv.size(2) / 3),
        head_size(channels / head_count),
        scale(1.0f / std::sqrt(static_cast<float>(head_size))) {}
  std::int64_t items;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t channels;
  std::int64_t head_size;
  float scale;

  /// Row 0 of an item in qkv and dqkv; its keys are `channels` further on, its values twice that.
  __device__ std::int64_t qkv_at(std::int64_t item) const {
    return item / heads * length * 3 * channels + item % heads * head_size;
  }
  /// The same in y and dy.
  __device__ std::int64_t y_at(std::int64_t item) const {
    return item / heads * length * channels + item % heads * head_size;
  }
  std::int64_t blocks(std::int64_t rows) const { return (length + rows - 1) / rows; }
};

/// Throws Error if the head is larger than these kernels support.
void check_head_size(const char* kernel, std::int64_t head_size);

/// What backward needs of each query: weight = 2^(score·log2(e) − exponent), dscore =
/// weight·(dweight − correction). Two arrays (items, padded length) in a workspace; queries from
/// `length` on get weight 0.
struct QueryTerms {
  QueryTerms(const AttentionSizes& sizes, const Stream& stream);
  /// exponent = log_sum_exp·log2(e), correction = sum of dy·y over the head.
  void compute(const Tensor& dy, const Tensor& y, const Tensor& log_sum_exp,
               const AttentionSizes& sizes, const Stream& stream) const;
  std::int64_t padded;
  Tensor workspace;
  float* exponents;
  float* corrections;
};

/// One head's rows, `stride` elements apart.
template <class T>
struct HeadRows {
  T* begin;
  std::int64_t stride;
};

/// Any head size up to 256.
void general_attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                               const AttentionSizes& sizes, const Stream& stream);
void general_attention_backward(const Tensor& dqkv, const Tensor& dy, const QueryTerms& terms,
                                const Tensor& qkv, const AttentionSizes& sizes,
                                const Stream& stream);

/// bf16, head size 64 or 128, all tensors 16-byte aligned.
void tensor_core_attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                                   const AttentionSizes& sizes, const Stream& stream);
void tensor_core_attention_backward(const Tensor& dqkv, const Tensor& dy, const QueryTerms& terms,
                                    const Tensor& qkv, const AttentionSizes& sizes,
                                    const Stream& stream);

}  // namespace hybrid_trainer::kernels::cuda
