#include "hybrid_trainer/kernels/clamped_gate.h"

#include <cmath>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

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
