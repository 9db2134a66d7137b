#include "hybrid_trainer/kernels/eight_bit.h"

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

void dequantize_eight_bit(const Tensor& values, const EightBitTensors& from, const Stream&) {
  const std::int64_t columns = values.size(1);
  const std::int8_t* const codes = from.codes.data<std::int8_t>();
  const float* const magnitudes = from.magnitudes.data<float>();
  visit_real(values.dtype(), [&](auto real) {
    auto* const to = values.data<decltype(real)>();
    parallel_rows(values.size(0), columns, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
          store(to + i, static_cast<float>(codes[i]) * magnitudes[row] * (1.0f / 127));
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
