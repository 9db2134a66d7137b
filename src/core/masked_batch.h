#pragma once

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

/// Makes an uninitialized batch of masked tokens: "tokens" (B, T), and M targets of each sequence as
/// "ends" (B, M), one more than their positions in increasing order, and "targets" (B, M), all i32.
/// Unused targets follow the others, with the end 0 and kNoTarget.
inline Batch empty_masked_batch(const Shape& tokens, std::int64_t targets, const Stream& stream) {
  const auto tensor = [&](const Shape& shape) {
    return Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream);
  };
  const Shape of_targets{tokens[0], targets};
  return Batch(
      {{"tokens", tensor(tokens)}, {"ends", tensor(of_targets)}, {"targets", tensor(of_targets)}},
      tokens[1]);
}

}  // namespace hybrid_trainer
