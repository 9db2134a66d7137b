#pragma once

#include <utility>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// What an encoder made of a batch's sources, and its gradient: all layers of a decoder that attend to
/// it hold one in common. The model sets it before the decoder runs, and takes its gradient when all
/// of them have gone backward.
class EncoderOutput {
 public:
  /// values: (B, S, C), lengths: (B) i32, tokens of each row, or undefined: all. What was there before
  /// goes, and its gradient.
  void set(Tensor values, Tensor lengths = {}) {
    values_ = std::move(values);
    lengths_ = std::move(lengths);
    gradient_ = {};
    ++version_;
  }
  /// Frees values, lengths and gradient.
  void drop() { set({}); }
  const Tensor& values() const { return values_; }
  const Tensor& lengths() const { return lengths_; }
  /// Differs from that of what was set before.
  std::int64_t version() const { return version_; }

  /// Whether anybody asks for the gradient; if not, as where the encoder is frozen, nobody computes it.
  bool wants_gradient() const { return wants_gradient_; }
  void want_gradient(bool wanted) { wants_gradient_ = wanted; }
  /// Adds a layer's part, of the values' shape. The first part's memory holds the sum.
  void add_gradient(const Tensor& part, const Stream& stream);
  /// The sum of the parts so far, in the dtype of activations; undefined where there is none.
  Tensor take_gradient() { return std::exchange(gradient_, {}); }

  /// In generation, so many texts in a row read one row of values, as those of a beam search do.
  std::int64_t texts_per_source() const { return texts_per_source_; }
  void set_texts_per_source(std::int64_t texts);

 private:
  Tensor values_, lengths_, gradient_;
  std::int64_t version_ = 0, texts_per_source_ = 1;
  bool wants_gradient_ = true;
};

}  // namespace hybrid_trainer
