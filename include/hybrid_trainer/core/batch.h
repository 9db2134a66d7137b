#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// One batch of training data. Language models: inputs and targets (B, T) i32 token ids, targets
/// are the inputs shifted by one. Other models may use any shape and dtype; dimension 0 is the
/// batch.
struct Batch {
  Tensor inputs;
  Tensor targets;

  std::int64_t size() const { return inputs.size(0); }
  /// Tokens of a language batch, or examples where the inputs have one value or vector per example.
  std::int64_t tokens() const { return targets.elements(); }
  /// Examples [begin, end), sharing memory.
  Batch examples(std::int64_t begin, std::int64_t end) const {
    return {inputs.rows(begin, end), targets.rows(begin, end)};
  }
};

}  // namespace hybrid_trainer
