#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention_blocks.h"

/// Gradients of rows of scores: a key's, for queries in a row. Only where AVX-512 BF16 is.

namespace hybrid_trainer::kernels::cpu {

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prefer-vector-width=512")

/// Scores of one key become weights e^(score·scale − log_sum_exp) of `queries`, and with their
/// gradients those of the scores: weight·(dweight − correction)·scale.
inline void differentiate_row(BFloat16* weights, BFloat16* dscores, const float* scores,
                              const float* dweights, const float* log_sum_exp,
                              const float* corrections, std::int64_t queries, float scale) {
#pragma omp simd
  for (std::int64_t i = 0; i < queries; ++i) {
    const float weight = exponential(scores[i] * scale - log_sum_exp[i]);
    store(weights + i, weight);
    store(dscores + i, weight * (dweights[i] - corrections[i]) * scale);
  }
}

/// Of scores capped at c: the derivative of c·tanh(s/c) joins.
inline void differentiate_capped_row(BFloat16* weights, BFloat16* dscores, const float* scores,
                                     const float* dweights, const float* log_sum_exp,
                                     const float* corrections, std::int64_t queries, float scale,
                                     float cap) {
#pragma omp simd
  for (std::int64_t i = 0; i < queries; ++i) {
    const float tangent = hyperbolic_tangent(scores[i] * scale / cap);
    const float weight = exponential(cap * tangent - log_sum_exp[i]);
    store(weights + i, weight);
    store(dscores + i,
          weight * (dweights[i] - corrections[i]) * (1.0f - tangent * tangent) * scale);
  }
}

/// Hides a key from `queries`, except [begin, end) of them.
inline void hide(BFloat16* weights, BFloat16* dscores, std::int64_t queries, std::int64_t begin,
                 std::int64_t end) {
  begin = std::clamp<std::int64_t>(begin, 0, queries);
  end = std::clamp(end, begin, queries);
  for (BFloat16* const row : {weights, dscores}) {
    std::fill(row, row + begin, BFloat16{});
    std::fill(row + end, row + queries, BFloat16{});
  }
}

#pragma GCC pop_options

}  // namespace hybrid_trainer::kernels::cpu
