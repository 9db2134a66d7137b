#include "hybrid_trainer/kernels/rotary.h"

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

void rotate(const Tensor& x, RotatedHeads heads, const Tensor& table, std::int64_t first_position,
            const Tensor& positions, Rotation rotation, const Stream&) {
  const std::int64_t length = x.size(1), stride = x.size(2), half = table.size(1) / 2;
  const std::int64_t count = heads.count, size = heads.size_or(2 * half);
  const float* const angles = table.data<float>() + (positions ? 0 : first_position) * 2 * half;
  const std::int32_t* const places = positions ? positions.data<std::int32_t>() : nullptr;
  const float sign = rotation == Rotation::kForward ? 1.0f : -1.0f;
  visit_real(x.dtype(), [&](auto real) {
    auto* const rows = x.data<decltype(real)>();
    const std::int64_t row_elements = count * 2 * half;
    parallel_rows(x.size(0) * length, row_elements, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const float* const cosines = angles + (places ? places[row] : row % length) * 2 * half;
        const float* const sines = cosines + half;
        for (std::int64_t head = 0; head < count; ++head) {
          auto* const first = rows + row * stride + head * size;
          auto* const second = first + half;
#pragma omp simd
          for (std::int64_t i = 0; i < half; ++i) {
            const float u = load(first + i), v = load(second + i), s = sign * sines[i];
            store(first + i, u * cosines[i] - v * s);
            store(second + i, v * cosines[i] + u * s);
          }
        }
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
