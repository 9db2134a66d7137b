#pragma once

#include <functional>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/generation/sampling.h"

namespace hybrid_trainer {

/// Chooses the number of tokens to draft, to maximize the measured tokens per second. A budget
/// limits the time lost by unsuccessful drafts to the time of a few tokens plus a small share of
/// the time of rounds without drafts. Even with a useless draft model, 800 tokens take at most 5 %
/// longer, except for the first round.
class DraftLength {
 public:
  static constexpr std::int64_t kLongest = 7;  // products read weights once for up to 8 rows

  /// Returns the number of tokens to draft in the next round, 0 to kLongest.
  std::int64_t next();
  /// Records a round: the numbers of drafted and accepted tokens, and the seconds of both models. A
  /// round generates one token in addition to the accepted ones.
  void update(std::int64_t drafted, std::int64_t taken, double seconds);

 private:
  std::int64_t fastest() const;
  void update_undrafted(double seconds);
  void update_acceptance(std::int64_t drafted, std::int64_t taken);
  std::vector<double> first_{};  // seconds of the rounds before the first draft, sorted
  bool has_drafted_ = false;     // set by the first draft, whose time is an outlier
  double plain_ = 0;             // recent seconds per token without drafts
  double extra_ = 0;             // recent additional seconds per drafted token; 0: unknown
  double taken_ = 4.8, tried_ = 6;
  double credit_ = 0;  // time budget: seconds that drafts may still lose
  std::int64_t idle_ = 0, patience_ = 0;
};

/// Speculative decoding: a small model drafts tokens, the main model processes them together, and a
/// drafted token is accepted if the main model samples the same one. Tokens depend only on logits,
/// seed and position, so drafts change only the speed. DraftLength chooses the number of drafted
/// tokens unless it is given. Source: Leviathan et al. 2023, "Fast inference from transformers via
/// speculative decoding"; sampling with the same random numbers in both models: Daliri et al. 2024,
/// "Coupling without communication and drafter-invariant speculative decoding".
class DraftModel {
 public:
  /// `model` must use the same tokenizer as the main model. `model` and `stream` must outlive this
  /// object. `length`, if given, fixes the number of tokens per draft.
  DraftModel(LanguageModel& model, DType dtype, const Stream& stream,
             std::optional<std::int64_t> length = {})
      : decoder_(model, dtype, stream), fixed_length_(length) {}

  /// Drafts at most `most` tokens to continue `text`, with ids below `words`. `position` is the
  /// position of the first drafted token for sample_token.
  std::vector<std::int32_t> draft(std::vector<std::int32_t> text, std::size_t words,
                                  const SamplingSettings& sampling, std::uint64_t position,
                                  std::int64_t most);
  /// Records the result of a round: the numbers of drafted and accepted tokens, and the seconds of
  /// the main model, which are 0 if it processed a prompt.
  void update(std::int64_t drafted, std::int64_t taken, double seconds);

 private:
  CachedDecoder decoder_;
  std::optional<std::int64_t> fixed_length_;
  DraftLength length_;
  double seconds_ = 0;  // seconds of the last draft, until its result is known
};

/// Splits bytes into pieces of whole UTF-8 characters. Invalid bytes become U+FFFD.
class Utf8Assembler {
 public:
  /// Returns all characters that are now complete.
  std::string add(std::string_view bytes);
  /// Returns U+FFFD if the text ends within a character.
  std::string rest();

 private:
  std::string held_;
};

struct GenerationSettings {
  std::int64_t tokens = 100;  // maximum number of new tokens
  SamplingSettings sampling{};
  TokenConstraints rules{};
  std::vector<std::string> stop{};         // the text ends before the first of these strings
  std::vector<std::int32_t> end_tokens{};  // tokens that end the text like the end-of-text token
  std::int64_t pinned = 0;  // number of first tokens to keep if the text outgrows the context
  ContextOverflow overflow = ContextOverflow::kTruncate;
};

/// Throws UsageError if any setting is out of range; the message names all of them.
void check(const GenerationSettings& settings);

struct GenerationResult {
  std::int64_t prompt_tokens = 0;       // processed tokens
  std::int64_t left_out = 0;            // dropped tokens of a prompt longer than the context
  std::int64_t dropped_tokens = 0;      // processed tokens dropped before the end
  std::int64_t tokens = 0;              // generated tokens; fewer than requested if the text ended
  std::int64_t drafted = 0, taken = 0;  // numbers of drafted and of accepted tokens
  double prompt_seconds = 0;
  double seconds = 0;  // time to generate all tokens after the first
  /// Returns the generation speed, excluding the first token. Returns nullopt if only one token was
  /// generated.
  std::optional<double> tokens_per_second() const {
    if (tokens < 2 || seconds <= 0) return {};
    return static_cast<double>(tokens - 1) / seconds;
  }
};

/// Tokenizes a prompt (Tokenizer::encode_document). If the result is empty, uses end_of_text() or,
/// if there is none, a newline. Throws DataError for unsupported characters.
std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt,
                                        ControlText control = ControlText::kAsTokens);

/// Throws DataError if a token of `text` is not below `vocabulary`, or if the tokenizer needs a
/// table of more than `vocabulary` rows (min_table_rows).
void check_text(std::int64_t vocabulary, const Tokenizer& tokenizer,
                std::span<const std::int32_t> text);

/// Continues a prompt and passes each piece of new text, in whole characters, to `write`. The
/// end-of-text token and the stop strings end the text and are not written. Tokens that the
/// template places before a text are pinned. `dtype`: dtype of activations, products and caches.
/// Deterministic. Throws UsageError if a setting is invalid, DataError if the tokenizer does not
/// fit the prompt or model, or if the text outgrows the context and settings.overflow is kError.
GenerationResult generate_text(LanguageModel& model, const Tokenizer& tokenizer,
                               const std::string& prompt, const GenerationSettings& settings,
                               const std::function<void(std::string_view)>& write,
                               const Stream& stream, DType dtype = DType::kF32);

/// Continues a nonempty `text`. `decoder` reuses the prefix shared with the previous text. `draft`
/// is null or speeds up generation without changing the text.
GenerationResult continue_text(CachedDecoder& decoder, DraftModel* draft,
                               const Tokenizer& tokenizer, std::vector<std::int32_t> text,
                               const GenerationSettings& settings,
                               const std::function<void(std::string_view)>& write);

}  // namespace hybrid_trainer
