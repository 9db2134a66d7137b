#pragma once

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// What attention keeps of texts: keys and values of all positions so far, (texts, max T, heads of
/// keys·head_size) each, and the rows that a convolution before it reads again.
struct KeyValueCache final : BranchState {
  /// Room for keys and values of `width` numbers each, which are not set.
  KeyValueCache(TextRoom room, std::int64_t width, DType dtype, const Stream& stream);
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
  /// Keeps the keys and values of tokens, and lets their queries attend to all of their texts. Tokens
  /// that follow others have each the bits of its coming alone. y: (B, T, heads of queries·head_size);
  /// qkv: queries, keys and values, (B, T, …); `pass`: with the positions of tokens that follow others.
  void attend(const Tensor& y, const Tensor& qkv, const DecodeTexts& texts, const Pass& pass,
              const kernels::AttentionSpec& heads, const Stream& stream) const;
};

}  // namespace hybrid_trainer
