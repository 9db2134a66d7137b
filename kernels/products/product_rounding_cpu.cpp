#include "kernels/elementwise/map_cpu.h"
#include "kernels/products/product_rounding.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

void raise(std::atomic<std::uint32_t>& most, std::uint32_t value) {
  std::uint32_t before = most.load(std::memory_order_relaxed);
  while (before < value && !most.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

template <Float8 kFormat>
void round_all(const Tensor& to, const Tensor& from, float largest) {
  const float scale = float8_scale<kFormat>(largest), inverse = 1 / scale;
  map([=](float x) { return nearest_float8<kFormat>(x, scale, inverse); }, to, from);
}

}  // namespace

/// Compares the bits of magnitudes as integers; a NaN exceeds all numbers.
void largest_magnitude(const Tensor& largest, const Tensor& most, const Tensor& x, const Stream&) {
  std::atomic<std::uint32_t> found = 0;
  visit_real(x.dtype(), [&]<class T>(T) {
    const auto* const in = x.data<T>();
    parallel_for(x.elements(), [in, &found](std::int64_t begin, std::int64_t end) {
      std::uint32_t of_part = 0;
#pragma omp simd reduction(max : of_part)
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint32_t bits = magnitude_bits(load(in + i));
        of_part = of_part > bits ? of_part : bits;
      }
      raise(found, of_part);
    });
  });
  *largest.data<float>() = std::bit_cast<float>(found.load());
  if (!most) return;
  const std::uint32_t before = magnitude_bits(*most.data<float>());
  *most.data<float>() = std::bit_cast<float>(std::max(before, found.load()));
}

void round_to_float8(const Tensor& to, const Tensor& from, Float8 format, const Tensor& expected,
                     const Tensor& largest, const Stream&) {
  const float before = *expected.data<float>();
  const float reached = before != 0 ? before : *largest.data<float>();
  if (format == Float8::kE4M3) return round_all<Float8::kE4M3>(to, from, reached);
  round_all<Float8::kE5M2>(to, from, reached);
}

void round_to_half(const Tensor& to, const Tensor& from, const Stream&) {
  map([](float x) { return nearest_half(x); }, to, from);
}

}  // namespace hybrid_trainer::kernels::cpu
