#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hybrid_trainer {

struct WordErrors {
  std::int64_t words = 0;  // in the reference
  std::int64_t substitutions = 0, deletions = 0, insertions = 0;
  std::int64_t errors() const { return substitutions + deletions + insertions; }
  /// Returns the errors per word of the reference. Many insertions can make it exceed 1. If the
  /// reference has no words, returns 0 without errors, else 1.
  double rate() const;
  /// Returns "3 substitutions, 1 deletion, 2 insertions".
  std::string text() const;
  WordErrors& operator+=(const WordErrors& other);
};

/// Normalizes a text for comparison, like Whisper's basic normalizer: converts it to lower case,
/// removes text in brackets, and replaces symbols, marks and punctuation by spaces.
std::string normalized_words(std::string_view text);

/// Returns the fewest edits from `reference` to `hypothesis` after normalizing both. Takes time and
/// memory proportional to the product of their numbers of words.
WordErrors word_errors(std::string_view reference, std::string_view hypothesis);

}  // namespace hybrid_trainer
