#pragma once

#include <utility>

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

/// A target that is not trained on.
inline constexpr std::int32_t kNoTarget = -1;

/// A batch of language modelling: "tokens" and "targets" (B, T) i32 ids, targets are the tokens
/// shifted by one. Sequences of several documents, as packed rows are, have "positions" (B, T) i32,
/// too: each token's place in its document, 0 where one begins; and some targets are kNoTarget.
inline Batch token_batch(Tensor tokens, Tensor targets, Tensor positions = {}) {
  const std::int64_t length = tokens.size(1);
  std::vector<NamedTensor> tensors{{"tokens", std::move(tokens)}, {"targets", std::move(targets)}};
  if (positions) tensors.push_back({"positions", std::move(positions)});
  return Batch(std::move(tensors), length);
}

}  // namespace hybrid_trainer
