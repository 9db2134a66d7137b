#include "hybrid_trainer/kernels/activation.h"

#include <type_traits>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/normal_distribution.h"

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

}  // namespace hybrid_trainer::kernels::cpu
