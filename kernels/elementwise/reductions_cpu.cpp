#include <numeric>

#include "hybrid_trainer/kernels/reductions.h"
#include "kernels/backend/share_sums.h"
#include "kernels/backend/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

template <class T>
void add_up_chunks(double* sums, const T* x, const T* y, std::int64_t elements) {
  parallel_shares(dot_chunks(elements), kMinElementsPerThread / kDotChunk,
                  [=](std::int64_t, std::int64_t first, std::int64_t last) {
                    for (std::int64_t c = first; c < last; ++c) {
                      const std::int64_t end = std::min(elements, (c + 1) * kDotChunk);
                      double sum = 0;
#pragma omp simd reduction(+ : sum)
                      for (std::int64_t i = c * kDotChunk; i < end; ++i)
                        sum += static_cast<double>(load(x + i)) * static_cast<double>(load(y + i));
                      sums[c] = sum;
                    }
                  });
}

void add_up_chunks(double* sums, const Tensor& x, const Tensor& y) {
  visit_real(x.dtype(),
             [&]<class T>(T) { add_up_chunks(sums, x.data<T>(), y.data<T>(), x.elements()); });
}

}  // namespace

void chunk_dots(const Tensor& results, const Tensor& x, const Tensor& y, const Stream&) {
  add_up_chunks(results.data<double>(), x, y);
}

/// Allocates its workspace outside of memory pools.
void dot(const Tensor& result, std::span<const Tensor> x, std::span<const Tensor> y, const Tensor&,
         const Stream&) {
  double total = 0;
  std::vector<double> sums;
  for (std::size_t k = 0; k < x.size(); ++k) {
    sums.resize(static_cast<std::size_t>(dot_chunks(x[k].elements())));
    add_up_chunks(sums.data(), x[k], y[k]);
    total += std::accumulate(sums.begin(), sums.end(), 0.0);
  }
  *result.data<double>() = total;
}

void quotient(const Tensor& result, const Tensor& x, double divisor, const Stream&) {
  const float* const in = x.data<float>();
  const double sum = sum_over_shares(x.elements(), [=](std::int64_t begin, std::int64_t end) {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = begin; i < end; ++i) total += static_cast<double>(in[i]);
    return total;
  });
  *result.data<double>() = sum / divisor;
}

}  // namespace hybrid_trainer::kernels::cpu
