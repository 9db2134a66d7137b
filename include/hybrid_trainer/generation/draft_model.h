#pragma once

#include <optional>

#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/generation/draft_length.h"
#include "hybrid_trainer/generation/sampling.h"

namespace hybrid_trainer {

/// Speculative decoding: a small model drafts tokens, which the model that is asked sees together,
/// and of which those are taken that it draws itself. As the token drawn depends on logits, seed and
/// position alone, the text is that without a draft; a draft that is often right only makes it faster.
/// How many tokens are drafted follows from what that gains (DraftLength), unless it is given.
/// Source: Leviathan et al. 2023, "Fast inference from transformers via speculative decoding"; that
/// both models draw with the same random numbers: Daliri et al. 2024, "Coupling without
/// communication and drafter-invariant speculative decoding".
class DraftModel {
 public:
  /// `model` has the tokens of the model that is asked; it, and `stream`, must outlive this.
  /// `length`, where it is given: tokens drafted each time.
  DraftModel(LanguageModel& model, DType dtype, const Stream& stream,
             std::optional<std::int64_t> length = {})
      : decoder_(model, dtype, stream), fixed_length_(length) {}

  /// Tokens below `words` with which `text` may go on, at most `most`; `position` is that of the
  /// first for sample_token.
  std::vector<std::int32_t> draft(std::vector<std::int32_t> text, std::size_t words,
                                  const SamplingSettings& sampling, std::uint64_t position,
                                  std::int64_t most);
  /// Records the result of a round: how many of the tokens were taken, and the seconds in which the
  /// model that is asked saw them, 0 where it saw a prompt.
  void learn(std::int64_t drafted, std::int64_t taken, double seconds);

 private:
  CachedDecoder decoder_;
  std::optional<std::int64_t> fixed_length_;
  DraftLength length_;
  double seconds_ = 0;  // of the drafts that nothing has been learnt of yet
};

}  // namespace hybrid_trainer
