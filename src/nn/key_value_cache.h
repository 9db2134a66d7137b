#pragma once

#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// What attention keeps of texts: keys and values of all positions so far, (texts, max T, heads of
/// keys·head_size) each, and the rows that a convolution before it reads again.
struct KeyValueCache final : BranchState {
  Tensor keys, values;
  Tensor rows{}, kept_rows{};  // undefined: no convolution, nothing kept
  bool can_record() const override { return true; }
  void grow(std::int64_t tokens, const Stream& stream) override;
  bool can_rewind() const override { return !rows; }
  bool can_keep() const override { return true; }
  void keep(std::int64_t text, const Stream& stream) override;
  void go_back(std::int64_t text, const Stream& stream) override;
  void branch(std::span<const std::int64_t> parents, std::int64_t tokens,
              const Stream& stream) override;
};

}  // namespace hybrid_trainer
