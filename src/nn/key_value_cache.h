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
  void go_back(std::int64_t text, const Stream& stream) override {
    if (rows) copy(rows.rows(text, text + 1), kept_rows.rows(text, text + 1), stream);
  }
  void branch(std::span<const std::int64_t> parents, std::int64_t tokens,
              const Stream& stream) override;
  /// Keeps the keys and values of tokens, and lets their queries attend to all of their texts. Tokens
  /// that follow others have each the bits of its coming alone. y: (B, T, heads of queries·head_size);
  /// qkv: queries, keys and values, (B, T, …); `pass`: with the positions of tokens that follow others.
  void attend(const Tensor& y, const Tensor& qkv, const DecodeTexts& texts, const Pass& pass,
              const kernels::AttentionSpec& heads, const Stream& stream) const;
};

/// What a mixer with a recurrence keeps of texts, whatever their length: the rows that its
/// convolution reads again, and the state of its scan.
class RecurrentState final : public BranchState {
 public:
  /// Shapes of all texts: (texts, …).
  RecurrentState(const Shape& convolution, const Shape& scan, DType dtype, const Stream& stream);
  void grow(std::int64_t, const Stream&) override {}
  bool can_rewind() const override { return false; }
  bool can_keep() const override { return true; }
  bool can_record() const override { return true; }
  void keep(std::int64_t text, const Stream& stream) override;
  void go_back(std::int64_t text, const Stream& stream) override;
  /// Of one text, (1, …).
  Tensor convolution(std::int64_t text) const { return convolution_.rows(text, text + 1); }
  Tensor scan(std::int64_t text) const { return scan_.rows(text, text + 1); }
  const Tensor& convolutions() const { return convolution_; }
  const Tensor& scans() const { return scan_; }

 private:
  Tensor convolution_, scan_;
  Tensor kept_convolution_, kept_scan_;  // as they were; undefined until something is kept
};

/// Calls step(first, end, texts) for tokens one after the other, rows [first, end) of all: one of
/// each text, or one text's in order, so that each has the bits of its coming alone.
template <class Step>
void for_each_token(const DecodeTexts& texts, std::int64_t batch, std::int64_t time,
                    const Step& step) {
  for (std::int64_t t = 0; t < time; ++t) step(t, t + batch, texts.each.rows(t, t + batch));
}

}  // namespace hybrid_trainer
