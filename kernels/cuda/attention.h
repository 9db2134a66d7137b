#pragma once

#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

void attention_forward(Cuda cuda, const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                       int heads);
void attention_backward(Cuda cuda, const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                        const Tensor& log_sum_exp, const Tensor& qkv, int heads);
void attention_decode(Cuda cuda, const Tensor& y, const Tensor& key_cache,
                      const Tensor& value_cache, const Tensor& qkv, std::int64_t position,
                      int heads);
void store_keys_values(Cuda cuda, const Tensor& key_cache, const Tensor& value_cache,
                       const Tensor& qkv);

}  // namespace hybrid_trainer::kernels
