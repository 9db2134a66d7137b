#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Word errors of a transcript compared to a reference.
struct WordErrors {
  std::int64_t words = 0;  // in the reference
  std::int64_t substitutions = 0, deletions = 0, insertions = 0;
  std::int64_t errors() const { return substitutions + deletions + insertions; }
  /// Returns errors per word of the reference; over 1 if there are many insertions. Without words:
  /// 0 without errors, else 1.
  double rate() const;
  /// Returns "3 substitutions, 1 deletion, 2 insertions".
  std::string text() const;
  WordErrors& operator+=(const WordErrors& other);
};

/// Returns the text normalized for comparison: lower case, without text in brackets, with signs,
/// marks and punctuation replaced by spaces. Same as Whisper's basic normalizer.
std::string normalized_words(std::string_view text);

/// Returns the fewest edits from `reference` to `hypothesis`, on their normalized words. Time and memory grow
/// with the product of their numbers of words.
WordErrors word_errors(std::string_view reference, std::string_view hypothesis);

}  // namespace hybrid_trainer
