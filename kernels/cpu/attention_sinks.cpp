#include <cmath>

#include "hybrid_trainer/kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

template <class T>
struct SinkTensors {
  const T *dy, *y;
  const float *log_sum_exp, *sinks;
  std::int64_t batch, length, heads, head_size;
};

/// Σ e^(sink − log_sum_exp)·⟨dy, y⟩ of a head.
template <class T>
inline double weighted_products(const SinkTensors<T>& tensors, std::int64_t head) {
  const auto [dy, y, log_sum_exp, sinks, batch, length, heads, size] = tensors;
  double sum = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int64_t at = ((b * length + t) * heads + head) * size;
      float product = 0;
#pragma omp simd reduction(+ : product)
      for (std::int64_t i = 0; i < size; ++i) product += load(dy + at + i) * load(y + at + i);
      sum += std::exp(sinks[head] - log_sum_exp[(b * heads + head) * length + t]) * product;
    }
  }
  return sum;
}

}  // namespace

void attention_sinks_backward(const Tensor& dsinks, GradientMode mode, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& sinks,
                              const Stream&) {
  const std::int64_t heads = sinks.size(0);
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    const SinkTensors<T> tensors{.dy = dy.data<T>(),
                                 .y = y.data<T>(),
                                 .log_sum_exp = log_sum_exp.data<float>(),
                                 .sinks = sinks.data<float>(),
                                 .batch = y.size(0),
                                 .length = y.size(1),
                                 .heads = heads,
                                 .head_size = y.size(2) / heads};
    float* const to = dsinks.data<float>();
    const bool adds = mode == GradientMode::kAccumulate;
    parallel_items(heads, [=](std::int64_t, std::int64_t head) {
      const double sum = weighted_products(tensors, head);
      to[head] = static_cast<float>((adds ? to[head] : 0.0) - sum);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
