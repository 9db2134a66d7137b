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
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const out = y.data<T>();
    const T *const start = from.data<T>(), *const step = direction.data<T>();
    parallel_for(y.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i)
        store(out + i, load(start + i) + a * load(step + i));
    });
  });
}

void scale(const Tensor& y, const Tensor& x, float a, const Stream&) {
  visit_real(y.dtype(), [&](auto real) {
    auto* const out = y.data<decltype(real)>();
    const auto* const in = x.data<decltype(real)>();
    parallel_for(y.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) store(out + i, a * load(in + i));
    });
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

namespace {

/// f(g) and its derivative, of the gate's kind.
template <Gate kGate>
inline float gate_value(float g) {
  return kGate == Gate::kSilu ? g * sigmoid(g) : g * gelu_gate(g);
}
template <Gate kGate>
inline float gate_slope(float g) {
  if constexpr (kGate == Gate::kGelu) return gelu_slope(g);
  const float share = sigmoid(g);
  return share * (1.0f + g * (1.0f - share));
}

template <class Function>
void visit_gate(Gate gate, Function&& function) {
  if (gate == Gate::kSilu) return function(std::integral_constant<Gate, Gate::kSilu>{});
  function(std::integral_constant<Gate, Gate::kGelu>{});
}

template <Gate kGate, class T>
void gated_rows_forward(T* out, const T* in, std::int64_t rows, std::int64_t columns) {
  parallel_rows(rows, columns, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T* const to = out + row * columns;
      const T *const gate = in + row * 2 * columns, *const up = gate + columns;
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i)
        store(to + i, gate_value<kGate>(load(gate + i)) * load(up + i));
    }
  });
}

template <Gate kGate, class T>
void gated_rows_backward(T* out, const T* gradient, const T* in, std::int64_t rows,
                         std::int64_t columns) {
  parallel_rows(rows, columns, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T *const from = gradient + row * columns, *const gate = in + row * 2 * columns,
                     *const up = gate + columns;
      T *const dgate = out + row * 2 * columns, *const dup = dgate + columns;
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i) {
        const float dh = load(from + i), g = load(gate + i), u = load(up + i);
        store(dgate + i, dh * u * gate_slope<kGate>(g));
        store(dup + i, dh * gate_value<kGate>(g));
      }
    }
  });
}

}  // namespace

void gated_forward(const Tensor& y, const Tensor& x, Gate gate, const Stream&) {
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    visit_gate(gate, [&](auto kind) {
      gated_rows_forward<kind>(y.data<T>(), x.data<T>(), y.size(0), y.size(1));
    });
  });
}

void gated_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, Gate gate, const Stream&) {
  visit_real(dy.dtype(), [&](auto real) {
    using T = decltype(real);
    visit_gate(gate, [&](auto kind) {
      gated_rows_backward<kind>(dx.data<T>(), dy.data<T>(), x.data<T>(), dy.size(0), dy.size(1));
    });
  });
}

void clip(const Tensor& y, const Tensor& x, float limit, const Stream&) {
  visit_real(y.dtype(), [&](auto real) {
    auto* const out = y.data<decltype(real)>();
    const auto* const in = x.data<decltype(real)>();
    parallel_for(y.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const float value = load(in + i);
        store(out + i, value > limit ? limit : value < -limit ? -limit : value);
      }
    });
  });
}

void clip_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, float limit,
                   const Stream&) {
  visit_real(dx.dtype(), [&](auto real) {
    auto* const out = dx.data<decltype(real)>();
    const auto *const gradient = dy.data<decltype(real)>(), *const in = x.data<decltype(real)>();
    parallel_for(dx.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i)
        store(out + i, std::fabs(load(in + i)) > limit ? 0.0f : load(gradient + i));
    });
  });
}

void cap_forward(const Tensor& y, const Tensor& x, float cap, const Stream&) {
  visit_real(y.dtype(), [&](auto real) {
    auto* const out = y.data<decltype(real)>();
    const auto* const in = x.data<decltype(real)>();
    parallel_for(y.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i)
        store(out + i, cap * hyperbolic_tangent(load(in + i) / cap));
    });
  });
}

void cap_backward(const Tensor& dx, const Tensor& dy, const Tensor& y, float cap, const Stream&) {
  visit_real(dx.dtype(), [&](auto real) {
    auto* const out = dx.data<decltype(real)>();
    const auto* const gradient = dy.data<decltype(real)>();
    const auto* const capped = y.data<decltype(real)>();
    parallel_for(dx.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const float share = load(capped + i) / cap;
        store(out + i, load(gradient + i) * (1.0f - share * share));
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
