#pragma once

#include <type_traits>

#include "kernels/cpu/attention_blocks.h"

/// Attention of rows of queries on rows of keys and values. Of self-attention both are qkv.

namespace hybrid_trainer::kernels::cpu {

template <class T>
struct AttentionRows {
  T *queries, *keys;
};

/// The rows as tensors, or those of their gradients.
struct AttentionOperands {
  template <class T>
  AttentionRows<T> rows() const {
    return {queries.data<std::remove_const_t<T>>(), keys.data<std::remove_const_t<T>>()};
  }
  const Tensor &queries, &keys;
};

/// What backward reads beside the operands.
struct AttentionResults {
  const Tensor &dy, &y, &log_sum_exp;
};

/// See attention_forward and cross_attention_forward.
void forward_attention(const Tensor& y, const Tensor& log_sum_exp, const AttentionOperands& from,
                       const AttentionSizes& sizes, const Stream& stream);
void backward_attention(const AttentionOperands& gradients, const AttentionResults& results,
                        const AttentionOperands& from, const AttentionSizes& sizes,
                        const Stream& stream);

}  // namespace hybrid_trainer::kernels::cpu
