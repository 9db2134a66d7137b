#pragma once

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// Decode state of attention: the keys and the values of all positions so far, each (texts, max T,
/// heads of keys·head_size), and the rows that a preceding convolution reads again.
struct KeyValueCache final : BranchState {
  /// Allocates uninitialized keys and values of `width` numbers each.
  KeyValueCache(DecodeCapacity room, std::int64_t width, DType dtype, const Stream& stream);
  Tensor keys, values;
  Tensor rows{}, kept_rows{};  // undefined if there is no convolution, or nothing was kept
  bool can_record() const override { return true; }
  void grow(std::int64_t tokens, const Stream& stream) override;
  bool can_rewind() const override { return !rows; }
  bool can_keep() const override { return true; }
  void keep(std::int64_t text, const Stream& stream) override;
  void restore(std::int64_t text, const Stream& stream) override {
    if (rows) copy(rows.rows(text, text + 1), kept_rows.rows(text, text + 1), stream);
  }
  void branch(std::span<const std::int64_t> parents, std::int64_t tokens,
              const Stream& stream) override;
  /// Appends the tokens' keys and values and lets their queries attend to their whole texts. Tokens
  /// that continue texts get the same bits as if they were decoded one at a time. y: (B, T, heads
  /// of queries·head_size); qkv: queries, keys and values, (B, T, …); `pass`: contains the
  /// positions of tokens that continue texts.
  void attend(const Tensor& y, const Tensor& qkv, const DecodeTexts& texts, const Pass& pass,
              const kernels::AttentionSpec& heads, const Stream& stream) const;
};

/// Constant-size decode state of a recurrent mixer: its convolution's rows and its scan's state.
class RecurrentState final : public BranchState {
 public:
  /// Shapes for all texts: (texts, …).
  RecurrentState(const Shape& convolution, const Shape& scan, DType dtype, const Stream& stream);
  void grow(std::int64_t, const Stream&) override {}
  bool can_rewind() const override { return false; }
  bool can_keep() const override { return true; }
  bool can_record() const override { return true; }
  void keep(std::int64_t text, const Stream& stream) override;
  void restore(std::int64_t text, const Stream& stream) override;
  /// Returns the state of one text, (1, …).
  Tensor convolution(std::int64_t text) const { return convolution_.rows(text, text + 1); }
  Tensor scan(std::int64_t text) const { return scan_.rows(text, text + 1); }
  const Tensor& convolutions() const { return convolution_; }
  const Tensor& scans() const { return scan_; }

 private:
  Tensor convolution_, scan_;
  Tensor kept_convolution_, kept_scan_;  // the kept copy; undefined until keep
};

/// Calls step(first, end, texts) for each t < `time`, on rows [t, t + batch): one token of each
/// text, or the next token of a single text. Tokens get the bits of separate decoding.
template <class Step>
void for_each_token(const DecodeTexts& texts, std::int64_t batch, std::int64_t time,
                    const Step& step) {
  for (std::int64_t t = 0; t < time; ++t) step(t, t + batch, texts.each.rows(t, t + batch));
}

}  // namespace hybrid_trainer
