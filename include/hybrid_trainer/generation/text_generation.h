#pragma once

#include <functional>

#include "hybrid_trainer/data/tokenizer.h"
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

/// Cuts a stream of bytes into pieces of whole UTF-8 characters. Stray bytes become U+FFFD.
class Utf8Assembler {
 public:
  /// The characters that these bytes complete; an incomplete character is held back until its end.
  std::string add(std::string_view bytes);
  /// U+FFFD for a character that is held back, where the text ends within it.
  std::string rest();

 private:
  std::string held_;
};

struct GenerationSettings {
  std::int64_t tokens = 100;  // most tokens to make
  SamplingSettings sampling{};
  WritingRules rules{};                    // of a folder, without what follows from the text
  std::vector<std::string> stop{};         // the text ends before the first of these
  std::vector<std::int32_t> end_tokens{};  // which end the text as the end-of-text token does
  std::int64_t pinned = 0;  // tokens at the text's beginning that stay when it outgrows the context
  ContextOverflow overflow = ContextOverflow::kTruncate;
};

/// Throws UsageError that names every setting out of range.
void check(const GenerationSettings& settings);

struct GenerationResult {
  std::int64_t prompt_tokens = 0;       // that were seen
  std::int64_t left_out = 0;            // of the prompt, which is longer than the context
  std::int64_t forgotten = 0;           // that were seen, but no longer when the last one was made
  std::int64_t tokens = 0;              // made; fewer than asked for where the text ended before
  std::int64_t drafted = 0, taken = 0;  // tokens of the draft model, and those that the text has
  double prompt_seconds = 0;
  double seconds = 0;  // of the tokens after the first
  /// Rate of the tokens after the first, where there are any.
  std::optional<double> tokens_per_second() const {
    if (tokens < 2 || seconds <= 0) return {};
    return static_cast<double>(tokens - 1) / seconds;
  }
};

/// A prompt's tokens, as Tokenizer::encode_document has them. An empty one without a template is the
/// end-of-text token or, if the tokenizer has none, a newline. Throws DataError where the tokenizer
/// lacks a character.
std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt,
                                        ControlText control = ControlText::kAsTokens);

/// Throws DataError where tokens are not the model's or the tokenizer has more than the model.
void check_text(std::int64_t vocabulary, const Tokenizer& tokenizer,
                std::span<const std::int32_t> text);

/// Continues a prompt and passes each piece of new text to `write` as it comes, in whole
/// characters; one that the text's end leaves unfinished is U+FFFD. The end-of-text token and the
/// stop strings end the text, unwritten. What the tokenizer's template puts before a text is pinned.
/// `dtype` is what is computed in. The same arguments give the same text. Throws UsageError
/// (settings), DataError (the tokenizer lacks a character of the prompt, or does not belong to the
/// model; or the text outgrows the context, where settings.overflow is kError).
GenerationResult generate_text(LanguageModel& model, const Tokenizer& tokenizer,
                               const std::string& prompt, const GenerationSettings& settings,
                               const std::function<void(std::string_view)>& write,
                               const Stream& stream, DType dtype = DType::kF32);

/// Continues after the tokens of `text`, not empty; `decoder` keeps what it knows of an earlier
/// text that begins alike. `draft`, if not null, makes it faster, not another text.
GenerationResult continue_text(CachedDecoder& decoder, DraftModel* draft,
                               const Tokenizer& tokenizer, std::vector<std::int32_t> text,
                               const GenerationSettings& settings,
                               const std::function<void(std::string_view)>& write);

}  // namespace hybrid_trainer
