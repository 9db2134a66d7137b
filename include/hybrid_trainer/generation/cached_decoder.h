#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// The logits of a text that grows, with what the model keeps between tokens. When it outgrows the
/// model's context, the last context/2 tokens are run through the model again, older ones dropped.
class CachedDecoder {
 public:
  /// `dtype`: of activations, products and caches. Model and stream must outlive this.
  CachedDecoder(LanguageModel& model, DType dtype, const Stream& stream);

  /// Sees a whole text, not empty; what it has in common with the one before is not computed again.
  /// Then logits(i) are those after the text without its last `drafted` − i tokens, i from 0 to
  /// drafted. A drafted token costs little where reading the weights bounds the time; its logits
  /// are, on a processor, to the bit those of seeing it alone.
  void see(std::span<const std::int32_t> text, std::int64_t drafted = 0);
  /// Vocabulary values, valid until the next call of see.
  std::span<const float> logits(std::int64_t i = 0) const;

  /// Tokens that may be drafted behind a text of `tokens` without outgrowing the context.
  std::int64_t room_for_drafts(std::int64_t tokens) const;
  /// Tokens that the last logits depend on.
  std::int64_t window() const { return std::ssize(text_) - begin_; }
  std::int64_t vocabulary() const { return model_.config().vocabulary; }

 private:
  LanguageModel& model_;
  DType dtype_;
  const Stream& stream_;
  std::unique_ptr<DecodeState> state_;
  std::vector<std::int32_t> text_;
  std::int64_t begin_ = 0;  // first token of the window
  Tensor logits_;           // (1 + drafted, at least vocabulary) f32 on the host
};

}  // namespace hybrid_trainer
