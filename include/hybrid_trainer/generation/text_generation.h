#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "hybrid_trainer/generation/context_window.h"
#include "hybrid_trainer/generation/draft_model.h"
#include "hybrid_trainer/generation/writing_rules.h"

namespace hybrid_trainer {

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
  std::optional<double> tokens_per_second() const;
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
