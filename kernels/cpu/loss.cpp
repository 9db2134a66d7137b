#include "kernels/cpu/loss.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/share_sums.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels {
namespace {

using namespace cpu;

void check_targets(const std::int32_t* targets, std::int64_t rows, std::int64_t vocabulary) {
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0 || targets[row] >= vocabulary) {
      throw DataError(concat("softmax_cross_entropy: target ", row, " is ", targets[row],
                             ", want 0 to ", vocabulary - 1,
                             "; was the data tokenized for another vocabulary?"));
    }
  }
}

template <class T>
inline float log_sum_exp_of_row(const T* logits, std::int64_t columns) {
  float highest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : highest)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float value = load(logits + i);
    highest = value > highest ? value : highest;
  }
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < columns; ++i) sum += exponential(load(logits + i) - highest);
  return highest + std::log(sum);
}

}  // namespace

void softmax_cross_entropy(Cpu, const Tensor& losses, const Tensor& logits, const Tensor& targets,
                           std::int64_t vocabulary, float gradient_scale) {
  const std::int64_t stride = logits.size(1);
  const std::int32_t* const wanted = targets.data<std::int32_t>();
  float* const loss = losses.data<float>();
  check_targets(wanted, logits.size(0), vocabulary);
  visit_real(logits.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const base = logits.data<T>();
    parallel_rows(logits.size(0), stride, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        T* const row = base + n * stride;
        const float log_sum = log_sum_exp_of_row(row, vocabulary);
        const float target_logit = load(row + wanted[n]);
        loss[n] = log_sum - target_logit;
        if (gradient_scale == 0.0f) continue;
#pragma omp simd
        for (std::int64_t i = 0; i < vocabulary; ++i) {
          store(row + i, exponential(load(row + i) - log_sum) * gradient_scale);
        }
        const float target_gradient = (exponential(target_logit - log_sum) - 1.0f) * gradient_scale;
        store(row + wanted[n], target_gradient);
        for (std::int64_t i = vocabulary; i < stride; ++i) store(row + i, 0.0f);
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels
