#include "kernels/cpu/few_rows.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// Rows of w taken together, so that several streams of memory are under way.
constexpr std::int64_t kTile = 4;

/// sums[j] = x · w[row + j] for a tile of rows of w.
template <class T>
[[gnu::always_inline]] inline void dot_tile(float* sums, const T* x, const T* w,
                                            std::int64_t columns) {
  const T* const w1 = w + columns;
  const T* const w2 = w1 + columns;
  const T* const w3 = w2 + columns;
  float sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float value = load(x + i);
    sum0 += value * load(w + i);
    sum1 += value * load(w1 + i);
    sum2 += value * load(w2 + i);
    sum3 += value * load(w3 + i);
  }
  sums[0] = sum0;
  sums[1] = sum1;
  sums[2] = sum2;
  sums[3] = sum3;
}

template <class T>
[[gnu::always_inline]] inline float dot_row(const T* x, const T* w, std::int64_t columns) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < columns; ++i) sum += load(x + i) * load(w + i);
  return sum;
}

}  // namespace

void multiply_few_rows(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                       const Tensor& residual, bool accumulate) {
  const std::int64_t rows = x.size(0);
  const std::int64_t columns = x.size(1);
  const std::int64_t outputs = w.size(0);
  const float* const shift = bias ? bias.data<float>() : nullptr;
  visit_real(x.dtype(), [&](auto in) {
    visit_real(y.dtype(), [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      const In* const from = x.data<In>();
      const In* const weight = w.data<In>();
      Out* const to = y.data<Out>();
      const Out* const added = residual ? residual.data<Out>() : (accumulate ? to : nullptr);
      parallel_rows(
          outputs,
          columns, [=](std::int64_t begin, std::int64_t end) __attribute__((always_inline)) {
            for (std::int64_t tile = begin; tile < end; tile += kTile) {
              const std::int64_t width = std::min(kTile, end - tile);
              for (std::int64_t row = 0; row < rows; ++row) {
                float sums[kTile];
                if (width == kTile) {
                  dot_tile(sums, from + row * columns, weight + tile * columns, columns);
                } else {
                  for (std::int64_t j = 0; j < width; ++j) {
                    sums[j] = dot_row(from + row * columns, weight + (tile + j) * columns, columns);
                  }
                }
                for (std::int64_t j = 0; j < width; ++j) {
                  const std::int64_t at = row * outputs + tile + j;
                  store(to + at, sums[j] + (shift ? shift[tile + j] : 0.0f) +
                                     (added ? load(added + at) : 0.0f));
                }
              }
            }
          });
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
