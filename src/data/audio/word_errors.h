#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hybrid_trainer {

struct WordErrors {
  std::int64_t words = 0;  // words of the reference
  std::int64_t substitutions = 0, deletions = 0, insertions = 0;
  std::int64_t errors() const { return substitutions + deletions + insertions; }
  /// Returns the number of errors per word of the reference, which may exceed 1. For a reference
  /// without words, returns 0 if there is no error and 1 if there is one.
  double rate() const;
  /// Returns "3 substitutions, 1 deletion, 2 insertions".
  std::string text() const;
  WordErrors& operator+=(const WordErrors& other);
};

/// Normalizes like Whisper's basic normalizer: lower case, no punctuation, no text in brackets.
std::string normalized_words(std::string_view text);

/// Returns the minimum number of edits from `reference` to `hypothesis` after normalizing both
/// texts. The time and the memory are proportional to the product of their numbers of words.
WordErrors word_errors(std::string_view reference, std::string_view hypothesis);

}  // namespace hybrid_trainer
