#pragma once

#include "kernels/cpu/product.h"

namespace hybrid_trainer::kernels::cpu {

/// C (m, n) = or += a product over k of contiguous arrays.
struct ChunkProduct {
  std::int64_t m, n, k;
  bool accumulate = false;
};

/// C (+)= A·B. A (m, k), B (k, n).
inline void multiply(float* c, const float* a, const float* b, const ChunkProduct& product) {
  const auto [m, n, k, accumulate] = product;
  multiply({.m = m,
            .n = n,
            .k = k,
            .a = a,
            .stride_a = k,
            .b = b,
            .stride_b = n,
            .c = c,
            .stride_c = n,
            .accumulate = accumulate});
}

/// C (+)= Aᵀ·B. A (k, m), B (k, n).
inline void multiply_transposed(float* c, const float* a, const float* b,
                                const ChunkProduct& product) {
  const auto [m, n, k, accumulate] = product;
  multiply({.transpose_a = Transpose::kYes,
            .m = m,
            .n = n,
            .k = k,
            .a = a,
            .stride_a = m,
            .b = b,
            .stride_b = n,
            .c = c,
            .stride_c = n,
            .accumulate = accumulate});
}

/// C (+)= A·Bᵀ. A (m, k), B (n, k).
inline void multiply_by_transposed(float* c, const float* a, const float* b,
                                   const ChunkProduct& product) {
  const auto [m, n, k, accumulate] = product;
  multiply({.transpose_b = Transpose::kYes,
            .m = m,
            .n = n,
            .k = k,
            .a = a,
            .stride_a = k,
            .b = b,
            .stride_b = k,
            .c = c,
            .stride_c = n,
            .accumulate = accumulate});
}

}  // namespace hybrid_trainer::kernels::cpu
