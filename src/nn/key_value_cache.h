#pragma once

#include "hybrid_trainer/kernels/attention.h"
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
  /// Of a text that begins: keeps its keys and values, and lets its queries attend to them. y: (1, T,
  /// heads of queries·head_size); qkv: queries, keys and values, (1, T, …).
  void begin(const Tensor& y, const Tensor& qkv, std::int64_t text,
             const kernels::AttentionSpec& heads, const Stream& stream) const;
  /// The same for tokens that follow others, (B, T, …), each to the bits of its coming alone; texts and
  /// positions: of each token, (B·T) i32.
  void follow(const Tensor& y, const Tensor& qkv, const Tensor& texts, const Tensor& positions,
              const kernels::AttentionSpec& heads, const Stream& stream) const;
};

}  // namespace hybrid_trainer
