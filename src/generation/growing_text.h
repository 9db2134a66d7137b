#pragma once

#include <algorithm>

#include "hybrid_trainer/generation/text_generation.h"

namespace hybrid_trainer {

/// Ends a text before the first stop string. Holds back text that may begin a stop string.
class StopStrings {
 public:
  /// Throws UsageError if a string is empty.
  explicit StopStrings(std::vector<std::string> strings);
  /// Adds a piece of text. Returns the text that cannot be part of a stop string.
  std::string add(std::string_view piece);
  /// Returns whether a stop string was found. `add` then returns no more text.
  bool reached() const { return reached_; }
  /// Returns the text that is still held back. Call it if the text ends without a stop string.
  std::string rest() { return std::exchange(held_, {}); }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool reached_ = false;
};

class GrowingText {
 public:
  /// `text` must satisfy check_text. The tokenizer must outlive this.
  GrowingText(const Tokenizer& tokenizer, std::int64_t vocabulary, std::vector<std::int32_t> text,
              const GenerationSettings& settings, std::function<void(std::string_view)> write);
  /// Draws the next token from the logits (vocabulary). Different texts may draw concurrently.
  std::int32_t draw(std::span<const float> logits) const;
  /// Adds a token and writes the new text. Returns false if the text has ended.
  bool add(std::int32_t token);

  const std::vector<std::int32_t>& text() const { return text_; }
  const SamplingSettings& sampling() const { return sampling_; }
  std::int64_t tokens() const { return tokens_; }  // generated tokens
  std::int64_t left() const { return rules_.longest - std::ssize(text_); }
  /// Returns the number of token ids that both the model and the tokenizer support.
  std::size_t words() const { return words_; }

 private:
  bool ends(std::int32_t token) const {
    return token == tokenizer_.end_of_text() || std::ranges::count(end_tokens_, token) > 0;
  }
  void write_some(const std::string& piece) const {
    if (!piece.empty()) write_(piece);
  }
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> text_, end_tokens_;
  SamplingSettings sampling_;
  TokenConstraints rules_;
  std::int64_t tokens_ = 0;
  std::size_t words_;
  Utf8Assembler assembler_;
  StopStrings stop_;
  std::function<void(std::string_view)> write_;
};

}  // namespace hybrid_trainer
