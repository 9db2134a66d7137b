#include "hybrid_trainer/kernels/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/token_batch.h"
#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/share_sums.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

void check_targets(const std::int32_t* targets, std::int64_t rows, std::int64_t vocabulary) {
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] == kNoTarget) continue;
    if (targets[row] < 0 || targets[row] >= vocabulary) {
      throw DataError(concat("softmax_cross_entropy: target ", row, " is ", targets[row],
                             ", want 0 to ", vocabulary - 1,
                             "; was the data tokenized for another vocabulary?"));
    }
  }
}

/// e^(logit − highest) of a row, and their sum.
struct RowExponentials {
  float highest, sum;
  float mean = 0;  // of logit − highest, which is what a smoothed target has beside its own
};

template <bool kSmoothed, class T>
inline RowExponentials exponentials_of_row(float* exponentials, const T* logits,
                                           std::int64_t columns) {
  float highest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : highest)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float value = load(logits + i);
    highest = value > highest ? value : highest;
  }
  // Block by block: a float that holds the sum of a whole vocabulary no longer notices what is added.
  constexpr std::int64_t kBlock = 1024;
  double sum = 0, below = 0;
  for (std::int64_t begin = 0; begin < columns; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, columns);
    float of_block = 0, below_in_block = 0;
#pragma omp simd reduction(+ : of_block, below_in_block)
    for (std::int64_t i = begin; i < end; ++i) {
      const float less = load(logits + i) - highest, power = exponential(less);
      exponentials[i] = power;
      of_block += power;
      if constexpr (kSmoothed) below_in_block += less;
    }
    sum += of_block;
    below += below_in_block;
  }
  return {highest, static_cast<float>(sum),
          static_cast<float>(below / static_cast<double>(columns))};
}

}  // namespace

void smoothed_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                            const SmoothedTargets& spec, float gradient_scale,
                            const Stream& stream) {
  const auto [vocabulary, smoothing] = spec;
  const std::int64_t rows = logits.size(0), stride = logits.size(1);
  const std::int32_t* const wanted = targets.data<std::int32_t>();
  float* const loss = losses.data<float>();
  const std::int64_t least = min_rows_per_thread(stride);
  const Tensor scratch = empty_workspace(share_count(rows, least) * stride, DType::kF32, stream);
  if (simulated(stream)) return;
  check_targets(wanted, rows, vocabulary);
  float* const lines = scratch.data<float>();
  visit_real(logits.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const base = logits.data<T>();
    const std::int64_t columns = vocabulary;
    const float of_all = smoothing, of_target = 1.0f - smoothing,
                of_each = gradient_scale * smoothing / static_cast<float>(columns),
                of_wanted = of_each + gradient_scale * of_target;
    parallel_shares(rows, least, [=](std::int64_t share, std::int64_t begin, std::int64_t end) {
      float* const exponentials = lines + share * stride;
      for (std::int64_t n = begin; n < end; ++n) {
        T* const row = base + n * stride;
        if (wanted[n] == kNoTarget) {
          loss[n] = 0;
          if (gradient_scale != 0.0f) std::fill_n(row, stride, T{});
          continue;
        }
        const auto [highest, sum, mean] =
            of_all != 0 ? exponentials_of_row<true>(exponentials, row, columns)
                        : exponentials_of_row<false>(exponentials, row, columns);
        const float target = load(row + wanted[n]) - highest;
        loss[n] = std::log(sum) - (of_target * target + of_all * mean);
        if (gradient_scale == 0.0f) continue;
        const float factor = gradient_scale / sum;
#pragma omp simd
        for (std::int64_t i = 0; i < columns; ++i)
          store(row + i, exponentials[i] * factor - of_each);
        store(row + wanted[n], exponentials[wanted[n]] * factor - of_wanted);
        for (std::int64_t i = columns; i < stride; ++i) store(row + i, 0.0f);
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
