#pragma once

#include <array>

#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/generation/sampling.h"

namespace hybrid_trainer {

/// Speculative decoding: a small model drafts tokens, which the model that is asked sees together,
/// and of which those are taken that it draws itself. As the token drawn depends on logits, seed and
/// position alone, the text is that without a draft; a draft that is often right only makes it faster.
/// How many tokens are drafted follows from how many were taken and from the time that both models
/// took; none where that does not pay, but for a try from time to time.
/// Source: Leviathan et al. 2023, "Fast inference from transformers via speculative decoding"; that
/// both models draw with the same random numbers: Daliri et al. 2024, "Coupling without
/// communication and drafter-invariant speculative decoding".
class DraftModel {
 public:
  /// `model` has the tokens of the model that is asked; it, and `stream`, must outlive this.
  DraftModel(LanguageModel& model, DType dtype, const Stream& stream)
      : decoder_(model, dtype, stream) {}

  /// Tokens below `words` with which `text` may go on, at most `most`; `position` is that of the
  /// first for sample_token.
  std::vector<std::int32_t> draft(std::vector<std::int32_t> text, std::size_t words,
                                  const SamplingSettings& sampling, std::uint64_t position,
                                  std::int64_t most);
  /// What came of it: how many of the tokens were taken, and the seconds in which the model that is
  /// asked saw them, 0 where it saw a prompt.
  void learn(std::int64_t drafted, std::int64_t taken, double seconds);

 private:
  static constexpr std::int64_t kLongest = 7;  // 8 rows are what products read weights once for
  std::int64_t best_length() const;
  CachedDecoder decoder_;
  double share_taken_ = 0.8;                    // of the tokens drafted, lately
  double draft_seconds_ = 0;                    // of a token, lately
  std::array<double, kLongest + 1> seconds_{};  // of seeing 1 + i tokens, lately; 0: not yet
  std::int64_t idle_ = 0, patience_ = 0;        // rounds without a draft until the next try
};

}  // namespace hybrid_trainer
