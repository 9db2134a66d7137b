#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/generation/sampling.h"

namespace hybrid_trainer {

/// Chooses the number of tokens to draft next: as many as make the most tokens a second by what
/// earlier rounds took and gave. Drafts that do not pay are charged to a credit of a few tokens'
/// time. Time without drafts adds a small share to it, and without credit nothing is drafted. So a
/// text of 800 tokens takes at most a twentieth longer, whatever the draft, but for the first round.
class DraftLength {
 public:
  static constexpr std::int64_t kLongest = 7;  // 8 rows are what products read weights once for

  /// From 0 to kLongest, for the round that begins.
  std::int64_t next();
  /// Records a round: the tokens drafted, those of them taken, and the seconds of both models. The
  /// model that is asked made one token more than were taken.
  void learn(std::int64_t drafted, std::int64_t taken, double seconds);

 private:
  std::int64_t fastest() const;
  void learn_plain(double seconds);
  void learn_shares(std::int64_t drafted, std::int64_t taken);
  std::vector<double> first_{};           // seconds of the rounds before the first draft, by size
  bool has_drafted_ = false;              // once: what is measured then is not what it costs later
  double plain_ = 0;                      // seconds of a token without drafts, lately
  double extra_ = 0;                      // seconds that a drafted token adds, lately; 0: not known
  double taken_ = 4.8, tried_ = 6;        // tokens lately, at first a guess
  double credit_ = 0;                     // seconds that drafts may still lose
  std::int64_t idle_ = 0, patience_ = 0;  // rounds without a draft until the next try
};

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
