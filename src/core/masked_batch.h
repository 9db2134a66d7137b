#pragma once

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

/// Makes an uninitialized batch of masked tokens, all i32: "tokens" (B, T), and for M targets per
/// sequence "ends" (B, M), each target's position + 1 in increasing order, and "targets" (B, M).
/// Unused targets come last, with end 0 and target kNoTarget.
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
