#include "hybrid_trainer/memory/eight_bit_quantization.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/thread_team.h"

namespace hybrid_trainer {
namespace {

/// Returns the largest magnitude.
float encode_row(std::int8_t* codes, const float* values, std::int64_t count) {
  float most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(values[i]));
  const float factor = most > 0 ? 127.0f / most : 0;
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<std::int8_t>(std::nearbyint(values[i] * factor));
  return most;
}

}  // namespace

kernels::EightBitTensors quantize_eight_bit(const Tensor& values, const Stream& home) {
  const std::int64_t rows = values.size(0), columns = values.size(1);
  auto tensors = kernels::EightBitTensors::empty(rows, columns, home);
  if (values.device().simulated || home.device().simulated) return tensors;
  const Stream host(values.pool());
  auto made = kernels::EightBitTensors::empty(rows, columns, host);
  const float* const from = values.data<float>();
  std::int8_t* const codes = made.codes.data<std::int8_t>();
  float* const magnitudes = made.magnitudes.data<float>();
  run_each(rows, 16, [&](std::int64_t row) {
    magnitudes[row] = encode_row(codes + row * columns, from + row * columns, columns);
  });
  wait_for_copy(tensors.codes, made.codes, home);
  wait_for_copy(tensors.magnitudes, made.magnitudes, home);
  return tensors;
}

}  // namespace hybrid_trainer
