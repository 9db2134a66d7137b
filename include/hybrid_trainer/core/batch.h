#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// A target that is not learnt.
inline constexpr std::int32_t kNoTarget = -1;

/// One batch of training data. Language models: inputs and targets (B, T) i32 token ids, targets
/// are the inputs shifted by one. Other models may use any shape and dtype; dimension 0 is the
/// batch. Sequences of several documents, as packed rows are, have `positions` (B, T) i32: each
/// token's place in its document, 0 where one begins; and some targets are kNoTarget.
struct Batch {
  Tensor inputs;
  Tensor targets;
  Tensor positions{};  // empty where each sequence is one document
  /// Targets that are not kNoTarget; 0: all are. Of a part of a batch its share of the whole's, so
  /// that the mean over equal parts of their losses is the whole's.
  double learnt = 0;

  std::int64_t size() const { return inputs.size(0); }
  /// Tokens of a language batch, or examples where the inputs have one value or vector per example.
  std::int64_t tokens() const { return targets.elements(); }
  /// By which the sum of the losses of all targets is divided.
  double loss_divisor() const {
    return learnt > 0 ? learnt : static_cast<double>(targets.elements());
  }
  /// Examples [begin, end), sharing memory.
  Batch examples(std::int64_t begin, std::int64_t end) const {
    return {inputs.rows(begin, end), targets.rows(begin, end),
            positions ? positions.rows(begin, end) : Tensor(),
            learnt * static_cast<double>(end - begin) / static_cast<double>(size())};
  }
};

}  // namespace hybrid_trainer
