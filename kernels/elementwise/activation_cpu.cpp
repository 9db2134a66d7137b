
#include "hybrid_trainer/kernels/elementwise.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/elementwise/normal_distribution.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

template <ActivationKind kKind>
inline float activation_value(float x) {
  if constexpr (kKind == ActivationKind::kRelu) return x > 0 ? x : x != x ? x : 0.0f;
  if constexpr (kKind == ActivationKind::kSilu) return x * sigmoid(x);
  return x * share_below(x, exponential(-0.5f * x * x));
}
template <ActivationKind kKind>
inline float activation_slope(float x) {
  if constexpr (kKind == ActivationKind::kRelu) return x > 0 ? 1.0f : 0.0f;
  if constexpr (kKind == ActivationKind::kGelu) return share_slope(x, exponential(-0.5f * x * x));
  const float share = sigmoid(x);
  return share * (1.0f + x * (1.0f - share));
}

/// function(the kind, which the compiler knows).
template <class Function>
void with_activation(ActivationKind kind, const Function& function) {
  switch (kind) {
    case ActivationKind::kRelu:
      return function(std::integral_constant<ActivationKind, ActivationKind::kRelu>());
    case ActivationKind::kSilu:
      return function(std::integral_constant<ActivationKind, ActivationKind::kSilu>());
    case ActivationKind::kGelu:
      return function(std::integral_constant<ActivationKind, ActivationKind::kGelu>());
  }
}

}  // namespace

void activation_forward(const Tensor& y, const Tensor& x, ActivationKind kind, const Stream&) {
  visit_real(x.dtype(), [&](auto real) {
    auto* const out = y.data<decltype(real)>();
    const auto* const in = x.data<decltype(real)>();
    with_activation(kind, [&](auto of) {
      parallel_for(x.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i)
          store(out + i, activation_value<of.value>(load(in + i)));
      });
    });
  });
}

void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ActivationKind kind,
                         const Stream&) {
  visit_real(x.dtype(), [&](auto real) {
    auto* const out = dx.data<decltype(real)>();
    const auto *const gradient = dy.data<decltype(real)>(), *const in = x.data<decltype(real)>();
    with_activation(kind, [&](auto of) {
      parallel_for(x.elements(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i)
          store(out + i, load(gradient + i) * activation_slope<of.value>(load(in + i)));
      });
    });
  });
}

void clamped_gate_forward(const Tensor& y, const Tensor& x, const ClampedGate& gate,
                          const Stream&) {
  const std::int64_t columns = y.size(1);
  const auto [limit, sharpness] = gate;
  visit_real(y.dtype(), [&](auto real) {
    auto* const out = y.data<decltype(real)>();
    const auto* const in = x.data<decltype(real)>();
    parallel_rows(y.size(0), columns, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const auto *const gates = in + row * 2 * columns, *const ups = gates + columns;
#pragma omp simd
        for (std::int64_t i = 0; i < columns; ++i) {
          float g = load(gates + i), u = load(ups + i);
          g = g > limit ? limit : g;
          u = u > limit ? limit : u < -limit ? -limit : u;
          store(out + row * columns + i, (u + 1.0f) * g * sigmoid(sharpness * g));
        }
      }
    });
  });
}

void clamped_gate_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                           const ClampedGate& gate, const Stream&) {
  const std::int64_t columns = dy.size(1);
  const auto [limit, sharpness] = gate;
  visit_real(dy.dtype(), [&](auto real) {
    auto* const out = dx.data<decltype(real)>();
    const auto *const gradient = dy.data<decltype(real)>(), *const in = x.data<decltype(real)>();
    parallel_rows(dy.size(0), columns, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const auto *const gates = in + row * 2 * columns, *const ups = gates + columns;
        auto *const dgates = out + row * 2 * columns, *const dups = dgates + columns;
#pragma omp simd
        for (std::int64_t i = 0; i < columns; ++i) {
          const float dh = load(gradient + row * columns + i), whole = load(gates + i),
                      up = load(ups + i), g = whole > limit ? limit : whole,
                      u = up > limit    ? limit
                          : up < -limit ? -limit
                                        : up;
          const float share = sigmoid(sharpness * g);
          const float slope = share * (1.0f + sharpness * g * (1.0f - share));
          store(dgates + i, whole > limit ? 0.0f : dh * (u + 1.0f) * slope);
          store(dups + i, std::fabs(up) > limit ? 0.0f : dh * g * share);
        }
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
