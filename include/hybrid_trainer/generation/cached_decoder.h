#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// Copies tokens from a host array to the stream's device, as i32.
Tensor device_tokens(std::span<const std::int32_t> tokens, const Shape& shape,
                     const Stream& stream);
/// Returns `values` as f32 on the device of `host`, a stream with pinned memory. Blocks.
Tensor host_f32(const Tensor& values, const Stream& host, const Stream& stream);

/// Selects the visible tokens of a text that outgrows the context. The first tokens are pinned.
/// When the text no longer fits, the older half of the visible unpinned tokens is dropped.
class ContextWindow {
 public:
  /// Limits `pinned` to half of the context.
  ContextWindow(std::int64_t context, std::int64_t pinned);
  /// Returns the number of tokens that are dropped from a text of `tokens` tokens.
  std::int64_t dropped(std::int64_t tokens) const;
  /// Returns the visible tokens of a text.
  std::vector<std::int32_t> of(std::span<const std::int32_t> text) const;
  std::int64_t context() const { return context_; }
  std::int64_t pinned() const { return pinned_; }
  /// Returns the number of visible tokens right after tokens are dropped.
  std::int64_t least() const {
    return pinned_ + std::max<std::int64_t>(1, (context_ - pinned_) / 2);
  }

 private:
  std::int64_t context_, pinned_;
};

/// Action for a text that outgrows the model's context.
enum class ContextOverflow { kTruncate, kError };

/// A prompt, shortened to the context.
struct FittedPrompt {
  std::vector<std::int32_t> tokens;
  std::int64_t left_out = 0;  // number of dropped tokens
};

/// Shortens a prompt, keeping its end, to leave room for `more` new tokens, but keeps at least
/// ContextWindow::least tokens. Throws DataError instead if `overflow` is kError.
FittedPrompt fit_prompt(std::vector<std::int32_t> prompt, const ContextWindow& window,
                        std::int64_t more, ContextOverflow overflow);

/// Throws DataError if a text of `tokens` tokens exceeds the context and `overflow` is kError.
void check_overflow(std::int64_t tokens, const ContextWindow& window, ContextOverflow overflow);

/// Computes logits of a growing text, caching the model's state between tokens. A text that
/// outgrows the model's context is shortened by a ContextWindow.
class CachedDecoder {
 public:
  /// `dtype`: dtype of activations, products and caches. `model` and `stream` must outlive this
  /// object.
  CachedDecoder(LanguageModel& model, DType dtype, const Stream& stream);

  /// Preallocates memory for texts of `tokens` tokens, at most the context. Throws OutOfMemory.
  void reserve(std::int64_t tokens);

  struct Parts {
    std::int64_t drafted = 0;  // number of drafted tokens at the end of the text
    std::int64_t pinned = 0;   // number of tokens at the beginning that are never dropped
  };
  /// Processes a whole, nonempty text. Reuses the state of the prefix shared with the previous
  /// text. Afterwards, logits(i) returns the logits after the text without its last `drafted` − i
  /// tokens, for 0 <= i <= drafted. Processing drafted tokens is cheap if memory bandwidth limits
  /// the speed. On the CPU, logits are bit-identical to processing the tokens one by one. Throws
  /// OutOfMemory.
  void see(std::span<const std::int32_t> text, const Parts& parts);
  void see(std::span<const std::int32_t> text) { see(text, Parts{}); }
  /// Returns the logits (see `see`), one per vocabulary token, valid until the next `see`.
  std::span<const float> logits(std::int64_t i = 0) const;

  /// Returns the number of tokens that can be drafted after a text of `tokens` tokens without
  /// outgrowing the context, or 0 if the model cannot restore its state after rejected drafts.
  std::int64_t draft_capacity(std::int64_t tokens, std::int64_t pinned) const {
    if (state_ && !state_->can_keep()) return 0;
    return context() - (tokens - ContextWindow(context(), pinned).dropped(tokens));
  }
  /// Returns the number of tokens that the last logits depend on.
  std::int64_t window() const { return std::ssize(seen_); }
  std::int64_t vocabulary() const { return model_.config().vocabulary; }
  std::int64_t context() const { return model_.config().context; }

 private:
  void keep();
  LanguageModel& model_;
  DType dtype_;
  const Stream& stream_;
  Stream host_;  // for logits
  std::unique_ptr<DecodeState> state_;
  std::vector<std::int32_t> seen_;
  std::int64_t dropped_ = 0;  // dropped tokens of the text
  Tensor logits_;             // (1 + drafted, at least vocabulary) f32 on the host
};

/// Computes logits of several growing texts of different lengths. One pass over the weights adds a
/// token to each. A ContextWindow shortens texts that outgrow the context, as in CachedDecoder.
class BatchDecoder {
 public:
  struct Next {
    std::int64_t row;
    std::int32_t token;
  };

  /// Allocates the memory of all texts of at most `room.tokens` tokens. Throws OutOfMemory.
  BatchDecoder(LanguageModel& model, DecodeCapacity room, DType dtype, const Stream& stream);

  std::int64_t rows() const { return std::ssize(rows_); }
  /// Replaces the row's text with `text`, which must not be empty. Its first `pinned` tokens are
  /// never dropped.
  void begin(std::int64_t row, std::span<const std::int32_t> text, std::int64_t pinned = 0);
  /// Adds a token to each given row's text. On the CPU, logits are bit-identical to separate
  /// decoding. Throws Error, without adding, if a row is invalid, has no text or occurs twice.
  void add(std::span<const Next> tokens);
  /// Replaces the text of each row i by the text of row parents[i]. The texts must have equal
  /// lengths. Throws Error if unsupported.
  void branch(std::span<const std::int64_t> parents);
  /// Returns the logits of the row's next token, valid until the row changes.
  std::span<const float> logits(std::int64_t row) const {
    const Tensor& all = rows_[static_cast<std::size_t>(row)].logits;
    return {all.data<float>(), static_cast<std::size_t>(vocabulary())};
  }
  std::int64_t vocabulary() const { return model_.config().vocabulary; }
  std::int64_t context() const { return model_.config().context; }

 private:
  struct Row {
    std::vector<std::int32_t> window{};  // tokens that the logits depend on
    std::int64_t pinned = 0;             // number of tokens that are never dropped
    Tensor logits{};                     // (1, at least vocabulary) f32 on the host
  };
  Row& at(std::int64_t row) { return rows_[static_cast<std::size_t>(row)]; }
  void check(std::span<const Next> tokens) const;
  void add_together(std::span<const Next> tokens);
  void see(std::span<const std::int64_t> rows, std::span<const std::int32_t> tokens);

  LanguageModel& model_;
  DType dtype_;
  const Stream& stream_;
  Stream host_;  // for logits
  std::unique_ptr<DecodeState> state_;
  std::vector<Row> rows_;
};

/// Makes a decoder with as many rows as fit in memory, at most `room.texts`. On the CPU, the rows
/// must fit in three quarters of the available memory. Throws OutOfMemory if not even one row fits.
std::unique_ptr<BatchDecoder> make_fitting_batch_decoder(LanguageModel& model, DecodeCapacity room,
                                                         DType dtype, const Stream& stream);

}  // namespace hybrid_trainer
