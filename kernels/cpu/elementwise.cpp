#include "hybrid_trainer/kernels/elementwise.h"

#include <cmath>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

void add(const Tensor& y, const Tensor& x, const Tensor& z, const Stream&) {
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const out = y.data<T>();
    const T* const left = x.data<T>();
    const T* const right = z.data<T>();
    parallel_for(y.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) store(out + i, load(left + i) + load(right + i));
    });
  });
}

void axpy(const Tensor& y, const Tensor& from, float a, const Tensor& direction, const Stream&) {
  float* const out = y.data<float>();
  const float* const start = from.data<float>();
  const float* const step = direction.data<float>();
  parallel_for(y.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) out[i] = start[i] + a * step[i];
  });
}

void scale(const Tensor& y, const Tensor& x, float a, const Stream&) {
  float* const out = y.data<float>();
  const float* const in = x.data<float>();
  parallel_for(y.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) out[i] = a * in[i];
  });
}

void normalize(const Tensor& y, const Tensor& x, const Tensor& squares, double floor,
               const Stream& stream) {
  scale(y, x, static_cast<float>(1 / (std::sqrt(*squares.data<double>()) + floor)), stream);
}

void cast(const Tensor& y, const Tensor& x, const Stream&) {
  visit_real(y.dtype(), [&](auto to) {
    visit_real(x.dtype(), [&](auto from) {
      auto* const out = y.data<decltype(to)>();
      const auto* const in = x.data<decltype(from)>();
      parallel_for(y.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) store(out + i, load(in + i));
      });
    });
  });
}

void gelu_forward(const Tensor& y, const Tensor& x, const Stream&) {
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const out = y.data<T>();
    const T* const in = x.data<T>();
    parallel_for(y.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const float value = load(in + i);
        store(out + i, value * gelu_gate(value));
      }
    });
  });
}

void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Stream&) {
  visit_real(dx.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const out = dx.data<T>();
    const T* const gradient = dy.data<T>();
    const T* const in = x.data<T>();
    parallel_for(dx.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        store(out + i, load(gradient + i) * gelu_slope(load(in + i)));
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
