#pragma once

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// Decode state of attention: the keys and values of all positions so far, each (texts, max T, key
/// heads · head_size), and the last input rows of a convolution before attention.
struct KeyValueCache final : BranchState {
  KeyValueCache(DecodeCapacity room, std::int64_t width, DType dtype, const Stream& stream);
  Tensor keys, values;
  Tensor rows{}, kept_rows{};  // undefined without a convolution or without a kept copy
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
  /// Appends keys and values of new tokens, and computes their attention to their whole texts, as
  /// if they were decoded one at a time. y: (B, T, query heads · head_size). qkv: (B, T, …),
  /// queries, keys and values. `pass` contains the positions of tokens that continue texts.
  void attend(const Tensor& y, const Tensor& qkv, const DecodeTexts& texts, const Pass& pass,
              const kernels::AttentionSpec& heads, const Stream& stream) const;
};

/// Constant-size decode state of a recurrent mixer: its convolution's rows and its scan's state.
class RecurrentState final : public BranchState {
 public:
  /// Shapes for all texts: (texts, …). Without a scan, only the convolution has a state.
  RecurrentState(const Shape& convolution, const std::optional<Shape>& scan, DType dtype,
                 const Stream& stream);
  void grow(std::int64_t, const Stream&) override {}
  bool can_rewind() const override { return false; }
  bool can_keep() const override { return true; }
  bool can_record() const override { return true; }
  void keep(std::int64_t text, const Stream& stream) override;
  void restore(std::int64_t text, const Stream& stream) override;
  Tensor convolution(std::int64_t text) const { return convolution_.rows(text, text + 1); }
  Tensor scan(std::int64_t text) const { return scan_.rows(text, text + 1); }
  const Tensor& convolutions() const { return convolution_; }
  const Tensor& scans() const { return scan_; }

 private:
  Tensor convolution_, scan_;
  Tensor kept_convolution_, kept_scan_;  // kept copies; undefined before the first call of keep
};

/// Calls step(first, end, texts) for each t < `time`, on rows [t, t + batch): one token of each
/// text, or the next token of a single text. Results are bit-identical to decoding tokens
/// separately.
template <class Step>
void for_each_token(const DecodeTexts& texts, std::int64_t batch, std::int64_t time,
                    const Step& step) {
  for (std::int64_t t = 0; t < time; ++t) step(t, t + batch, texts.each.rows(t, t + batch));
}

}  // namespace hybrid_trainer
