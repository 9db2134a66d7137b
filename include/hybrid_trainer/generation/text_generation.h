#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/generation/sampling.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// A text that grows token by token, with what the model keeps between tokens. When it outgrows the
/// model's context, the last context/2 tokens are run through the model again, older ones dropped.
class CachedDecoder {
 public:
  CachedDecoder(LanguageModel& model, const Stream& stream);
  /// Logits of the token after all tokens so far: vocabulary values, valid until the next call.
  /// `tokens` must not be empty.
  std::span<const float> logits_after(std::span<const std::int32_t> tokens);
  /// Tokens that the last logits depend on.
  std::int64_t window() const { return static_cast<std::int64_t>(text_.size()) - begin_; }

 private:
  LanguageModel& model_;
  const Stream& stream_;
  std::unique_ptr<DecodeState> state_;
  std::vector<std::int32_t> text_;
  std::int64_t begin_ = 0;  // first token of the window
  Tensor logits_;
};

/// Cuts a stream of bytes into pieces of whole UTF-8 characters. Stray bytes become U+FFFD.
class Utf8Assembler {
 public:
  /// The characters that these bytes complete; an incomplete character is held back until its end.
  std::string add(std::string_view bytes);

 private:
  std::string held_;
};

struct GenerationSettings {
  std::int64_t tokens = 100;  // most tokens to make
  SamplingSettings sampling{};
  std::vector<std::string> stop{};  // the text ends before the first of these
};

/// Throws UsageError that names every setting out of range.
void check(const GenerationSettings& settings);

struct GenerationResult {
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;  // made; fewer than asked for where the text ended before
  double prompt_seconds = 0;
  double seconds = 0;  // of the tokens after the first
  /// Rate of the tokens after the first; 0 where there are fewer than two.
  double tokens_per_second() const;
};

/// Continues a prompt and passes each piece of new text to `write` as it comes, in whole characters.
/// The prompt follows what the tokenizer's template puts before a text; an empty one without a
/// template starts from the end-of-text token or, if the tokenizer has none, from a newline. The
/// end-of-text token and the stop strings end the text, unwritten. The same arguments give the same
/// text. Throws UsageError (settings),
/// DataError (the tokenizer lacks a character of the prompt, or does not belong to the model).
GenerationResult generate_text(LanguageModel& model, const Tokenizer& tokenizer,
                               const std::string& prompt, const GenerationSettings& settings,
                               const std::function<void(std::string_view)>& write,
                               const Stream& stream);

}  // namespace hybrid_trainer
