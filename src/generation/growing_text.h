#pragma once

#include <algorithm>

#include "hybrid_trainer/generation/text_generation.h"

namespace hybrid_trainer {

/// Ends a text that comes in pieces before the first of some strings. What may be the beginning of one
/// is held back until it is known.
class StopStrings {
 public:
  /// Throws UsageError of an empty one.
  explicit StopStrings(std::vector<std::string> strings);
  /// The text that surely comes before any of them.
  std::string add(std::string_view piece);
  /// Whether one of them came: nothing follows.
  bool reached() const { return reached_; }
  /// The text that was held back, if the text ends without a stop.
  std::string rest() { return std::exchange(held_, {}); }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool reached_ = false;
};

/// A text that grows by tokens drawn from logits, until it ends.
class GrowingText {
 public:
  /// `text`: as check_text wants it. The tokenizer must outlive this.
  GrowingText(const Tokenizer& tokenizer, std::int64_t vocabulary, std::vector<std::int32_t> text,
              const GenerationSettings& settings, std::function<void(std::string_view)> write);
  /// The next token by the logits (vocabulary) after the text. Of several texts at the same time.
  std::int32_t draw(std::span<const float> logits) const;
  /// Adds the token, and passes on what it surely adds to the text. False where the text has ended;
  /// the bytes of an unfinished character are then U+FFFD.
  bool add(std::int32_t token);

  const std::vector<std::int32_t>& text() const { return text_; }
  const SamplingSettings& sampling() const { return sampling_; }
  std::int64_t tokens() const { return tokens_; }  // made so far
  /// Tokens that may still be made.
  std::int64_t left() const { return rules_.longest - std::ssize(text_); }
  /// Of the model, those that the tokenizer has, too.
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
  WritingRules rules_;
  std::int64_t tokens_ = 0;
  std::size_t words_;
  Utf8Assembler assembler_;
  StopStrings stop_;
  std::function<void(std::string_view)> write_;
};

}  // namespace hybrid_trainer
