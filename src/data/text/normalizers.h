#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

/// Conversions of Hugging Face's tokenizers. They keep bytes that are not UTF-8.

/// Removes control characters, NUL and U+FFFD; white space becomes blanks (BertNormalizer).
std::string without_controls(std::string_view text);
/// Inserts blanks around CJK ideographs (handle_chinese_chars of BertNormalizer).
std::string with_spaced_ideographs(std::string_view text);
/// Removes characters with any of these traits (see unicode.h).
std::string without_traits(std::string_view text, int traits);
std::string stripped(std::string_view text, bool left, bool right);
/// Removes control characters, and replaces other white space and joiners by blanks (Nmt).
std::string for_translation(std::string_view text);

/// SentencePiece's table of characters and their replacements: a double-array trie of 32-bit units,
/// followed by NUL-terminated texts. Source: sentencepiece, src/normalizer.cc, and darts-clone.
class CharacterMap {
 public:
  /// Throws DataError if the table is damaged.
  explicit CharacterMap(std::string bytes);
  /// Replaces each grapheme cluster of less than 6 bytes by the text of its shortest prefix in the
  /// table. Replaces each character of all other clusters by the character's text. This equals
  /// Hugging Face's tokenizers. `text` must be UTF-8. Throws DataError if the table is damaged.
  std::string replaced(std::string_view text) const;

 private:
  void append(std::string_view cluster, std::string& result) const;
  const char* find(std::string_view part) const;
  std::uint32_t unit(std::size_t place) const;
  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace hybrid_trainer
