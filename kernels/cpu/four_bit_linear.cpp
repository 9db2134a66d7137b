#include "hybrid_trainer/kernels/four_bit_linear.h"

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

decltype(kernels::dequantize_four_bit) dequantize_four_bit;

void four_bit_linear(const Tensor& y, const Tensor& x, const FourBitRows& w, const Tensor& bias,
                     const Tensor& residual, const Stream& stream) {
  const std::int64_t inputs = x.size(1), outputs = y.size(1), first = w.first;
  const Tensor values = empty_workspace(w.count * inputs, DType::kF32, stream);
  if (simulated(stream)) return;
  cpu::dequantize_four_bit(values, w.tensors, stream);
  const float* const weights = values.data<float>();
  const float* const added = bias ? bias.data<float>() : nullptr;
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const T* const from = x.data<T>();
    const T* const more = residual ? residual.data<T>() : nullptr;
    T* const to = y.data<T>();
    parallel_rows(w.count, x.elements(),
                  [=, rows = x.size(0)](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t o = begin; o < end; ++o) {
                      for (std::int64_t n = 0; n < rows; ++n) {
                        float sum = 0;
#pragma omp simd reduction(+ : sum)
                        for (std::int64_t i = 0; i < inputs; ++i)
                          sum += load(from + n * inputs + i) * weights[o * inputs + i];
                        const std::int64_t at = n * outputs + first + o;
                        if (added != nullptr) sum += added[first + o];
                        store(to + at, more != nullptr ? sum + load(more + at) : sum);
                      }
                    }
                  });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
