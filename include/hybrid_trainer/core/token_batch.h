#pragma once

#include <utility>

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

/// A target that is not trained on.
inline constexpr std::int32_t kNoTarget = -1;

/// A batch of language modelling: "tokens" and "targets" (B, T) i32 ids, targets are the tokens
/// shifted by one. Sequences of several documents, as packed rows are, have "positions" (B, T) i32,
/// too: each token's place in its document, 0 where one begins; and some targets are kNoTarget. Padded
/// sequences have "is_token" (B, T) i32: 0 for padding, else 1.
inline Batch token_batch(Tensor tokens, Tensor targets, Tensor positions = {}) {
  const std::int64_t length = tokens.size(1);
  std::vector<NamedTensor> tensors{{"tokens", std::move(tokens)}, {"targets", std::move(targets)}};
  if (positions) tensors.push_back({"positions", std::move(positions)});
  return Batch(std::move(tensors), length);
}

/// A token_batch of `shape` (B, T), not initialised.
inline Batch empty_token_batch(const Shape& shape, bool has_positions, const Stream& stream) {
  const auto tensor = [&] { return Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream); };
  return token_batch(tensor(), tensor(), has_positions ? tensor() : Tensor());
}

/// Makes a batch of padded sequences of documents, not initialised; of pairs of answers also with each
/// token's half and reference.
inline Batch empty_row_batch(const Shape& shape, bool has_pairs, const Stream& stream) {
  const Batch batch = empty_token_batch(shape, true, stream);
  std::vector<NamedTensor> tensors = batch.tensors();
  tensors.push_back({"is_token", Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream)});
  if (!has_pairs) return Batch(std::move(tensors), batch.tokens_per_example());
  tensors.push_back({"halves", Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream)});
  tensors.push_back({"references", Tensor::empty(shape, DType::kF32, MemoryKind::kData, stream)});
  return Batch(std::move(tensors), batch.tokens_per_example());
}

}  // namespace hybrid_trainer
