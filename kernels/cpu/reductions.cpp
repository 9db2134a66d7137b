#include "hybrid_trainer/kernels/reductions.h"

#include "kernels/backend.h"
#include "kernels/cpu/share_sums.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

double dot_of_pair(const Tensor& x, const Tensor& y) {
  return visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const T* const left = x.data<T>();
    const T* const right = y.data<T>();
    return sum_over_shares(x.elements(), [=](std::int64_t begin, std::int64_t end) {
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = begin; i < end; ++i) {
        sum += static_cast<double>(load(left + i)) * static_cast<double>(load(right + i));
      }
      return sum;
    });
  });
}

}  // namespace

void dot(const Tensor& result, std::span<const Tensor> x, std::span<const Tensor> y,
         const Stream&) {
  double total = 0;
  for (std::size_t k = 0; k < x.size(); ++k) total += dot_of_pair(x[k], y[k]);
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
