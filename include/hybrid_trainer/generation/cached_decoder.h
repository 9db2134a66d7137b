#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

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
  std::int64_t room_for_drafts(std::int64_t tokens, std::int64_t pinned) const;
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

}  // namespace hybrid_trainer
