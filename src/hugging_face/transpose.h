#pragma once

#include <algorithm>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// to (columns, rows) = from (rows, columns) transposed, f32 on the host.
inline void transpose(const Tensor& to, const Tensor& from) {
  constexpr std::int64_t kBlock = 32;  // blocks stay in the cache
  const std::int64_t rows = from.size(0), columns = from.size(1);
  const float* source = from.data<float>();
  float* target = to.data<float>();
  for (std::int64_t i = 0; i < rows; i += kBlock) {
    for (std::int64_t j = 0; j < columns; j += kBlock) {
      for (std::int64_t r = i; r < std::min(rows, i + kBlock); ++r) {
        for (std::int64_t c = j; c < std::min(columns, j + kBlock); ++c)
          target[c * rows + r] = source[r * columns + c];
      }
    }
  }
}

}  // namespace hybrid_trainer
