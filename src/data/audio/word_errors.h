#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// How a transcript differs from what was said, in words.
struct WordErrors {
  std::int64_t words = 0;  // of what was said
  std::int64_t substitutions = 0, deletions = 0, insertions = 0;
  std::int64_t errors() const { return substitutions + deletions + insertions; }
  /// Errors for each word that was said; over 1 where much was inserted. Of no words: 0 without
  /// errors, else 1.
  double rate() const;
  WordErrors& operator+=(const WordErrors& other);
};

/// The text as it is compared: in lower case, without what stands in brackets, with spaces in place of
/// signs, marks and punctuation. Whisper's basic normalizer does this.
std::string normal_words(std::string_view text);

/// The fewest changes that make `heard` of `said`, both by their normal words. Time and memory grow
/// with the product of their numbers of words.
WordErrors word_errors(std::string_view said, std::string_view heard);

}  // namespace hybrid_trainer
