#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// Tokens of a host's array as i32 on the stream's device.
Tensor device_tokens(std::span<const std::int32_t> tokens, const Shape& shape,
                     const Stream& stream);
/// The values as f32 in the memory of `host`, see make_host_pool, or where they are there. Waits for
/// them. From pinned memory that the pool reuses, a copy takes no pages to lock for each token.
Tensor host_f32(const Tensor& values, const Stream& host, const Stream& stream);

/// The part of a text that a model sees if it outgrows the context: the first tokens, which are
/// pinned (a beginning-of-text token, a system message), and the last ones. Each time that the text
/// no longer fits, half of the tokens behind the pinned ones are dropped.
class ContextWindow {
 public:
  /// At most half of the context is pinned.
  ContextWindow(std::int64_t context, std::int64_t pinned);
  /// Tokens that are no longer seen of a text of so many.
  std::int64_t dropped(std::int64_t tokens) const;
  /// The tokens that are seen.
  std::vector<std::int32_t> of(std::span<const std::int32_t> text) const;
  std::int64_t context() const { return context_; }
  std::int64_t pinned() const { return pinned_; }
  /// Tokens that are left when a text has just outgrown the context.
  std::int64_t least() const {
    return pinned_ + std::max<std::int64_t>(1, (context_ - pinned_) / 2);
  }

 private:
  std::int64_t context_, pinned_;
};

/// Action for a text that outgrows the model's context.
enum class ContextOverflow { kTruncate, kError };

/// A prompt as the model sees it.
struct FittedPrompt {
  std::vector<std::int32_t> tokens;
  std::int64_t left_out = 0;  // tokens behind the pinned ones
};

/// A prompt that is longer than the context keeps its pinned tokens and its end: as much as leaves
/// room for `more` tokens to be made, but at least what ContextWindow leaves. Throws DataError where
/// `overflow` is kError.
FittedPrompt fit_prompt(std::vector<std::int32_t> prompt, const ContextWindow& window,
                        std::int64_t more, ContextOverflow overflow);

/// Throws DataError for a text of so many tokens that has outgrown the context, where `overflow` is
/// kError.
void check_overflow(std::int64_t tokens, const ContextWindow& window, ContextOverflow overflow);

/// The logits of a text that grows, with what the model keeps between tokens. Of a text that outgrows
/// the model's context it sees what a ContextWindow leaves.
class CachedDecoder {
 public:
  /// `dtype`: of activations, products and caches. Memory for a text is taken when it is seen. Model
  /// and stream must outlive this.
  CachedDecoder(LanguageModel& model, DType dtype, const Stream& stream);

  /// Takes memory for texts of so many tokens, or the context, so that none is taken on the way.
  /// Throws OutOfMemory.
  void reserve(std::int64_t tokens);

  struct Parts {
    std::int64_t drafted = 0;  // tokens at the end of the text
    std::int64_t pinned = 0;   // tokens at its beginning that stay in the window
  };
  /// Sees a whole text, not empty; what it has in common with the one before is not computed again.
  /// Then logits(i) are those after the text without its last `drafted` − i tokens, i from 0 to
  /// drafted. A drafted token costs little where reading the weights bounds the time; its logits
  /// are, on a processor, to the bit those of seeing it alone. Throws OutOfMemory.
  void see(std::span<const std::int32_t> text, const Parts& parts);
  void see(std::span<const std::int32_t> text) { see(text, Parts{}); }
  /// Vocabulary values, valid until the next call of see.
  std::span<const float> logits(std::int64_t i = 0) const;

  /// Tokens that may be drafted behind a text of `tokens` without outgrowing the context; none where
  /// the model cannot go back behind those that are not taken.
  std::int64_t room_for_drafts(std::int64_t tokens, std::int64_t pinned) const {
    if (state_ && !state_->can_keep()) return 0;  // behind drafts that are not taken
    return context() - (tokens - ContextWindow(context(), pinned).dropped(tokens));
  }
  /// Tokens that the last logits depend on.
  std::int64_t window() const { return std::ssize(seen_); }
  std::int64_t vocabulary() const { return model_.config().vocabulary; }
  std::int64_t context() const { return model_.config().context; }

 private:
  void keep();
  LanguageModel& model_;
  DType dtype_;
  const Stream& stream_;
  Stream host_;  // of logits
  std::unique_ptr<DecodeState> state_;
  std::vector<std::int32_t> seen_;
  std::int64_t dropped_ = 0;  // tokens of the text that are not seen
  Tensor logits_;             // (1 + drafted, at least vocabulary) f32 on the host
};

/// The logits of several texts of any lengths that grow side by side, so that a token of each takes
/// one pass over the weights. Of a text that outgrows the model's context it sees what a
/// ContextWindow leaves, as CachedDecoder does.
class BatchDecoder {
 public:
  struct Next {
    std::int64_t row;
    std::int32_t token;
  };

  /// Takes the memory of all texts at once: `room.tokens` is the most that each may come to, but no
  /// more than the context. `dtype`: of activations, products and caches. Model and stream must
  /// outlive this. Throws OutOfMemory.
  BatchDecoder(LanguageModel& model, TextRoom room, DType dtype, const Stream& stream);

  std::int64_t rows() const { return std::ssize(rows_); }
  /// Sees a whole text, not empty, in place of what the row held; its first `pinned` tokens stay in
  /// the window. Throws Error (no such row, no token).
  void begin(std::int64_t row, std::span<const std::int32_t> text, std::int64_t pinned = 0);
  /// Sees one more token of each of some rows' texts. On a processor the logits are to the bit
  /// those of each text alone. Throws Error, before it sees any, where a row is none of these, has
  /// no text or two tokens.
  void add(std::span<const Next> tokens);
  /// Each row i goes on from what row parents[i] has seen; parents have seen as many tokens. Throws Error
  /// where the model's state cannot do that.
  void branch(std::span<const std::int64_t> parents);
  /// Logits of the next token of the row: vocabulary values, valid until it sees more.
  std::span<const float> logits(std::int64_t row) const {
    const Tensor& all = rows_[static_cast<std::size_t>(row)].logits;
    return {all.data<float>(), static_cast<std::size_t>(vocabulary())};
  }
  std::int64_t vocabulary() const { return model_.config().vocabulary; }
  std::int64_t context() const { return model_.config().context; }

 private:
  struct Row {
    std::vector<std::int32_t> window{};  // the tokens that its logits depend on
    std::int64_t pinned = 0;             // of these, that stay
    Tensor logits{};                     // (1, at least vocabulary) f32 on the host
  };
  Row& at(std::int64_t row) { return rows_[static_cast<std::size_t>(row)]; }
  void check(std::span<const Next> tokens) const;
  void add_together(std::span<const Next> tokens);
  void see(std::span<const std::int64_t> rows, std::span<const std::int32_t> tokens);

  LanguageModel& model_;
  DType dtype_;
  const Stream& stream_;
  Stream host_;  // of logits
  std::unique_ptr<DecodeState> state_;
  std::vector<Row> rows_;
};

/// One of as many rows, at most `room.texts`, as there is memory for, on a processor in three
/// quarters of what the system has available. Throws OutOfMemory where there is none for one.
std::unique_ptr<BatchDecoder> make_fitting_batch_decoder(LanguageModel& model, TextRoom room,
                                                         DType dtype, const Stream& stream);

}  // namespace hybrid_trainer
