#pragma once

#include <algorithm>
#include <cstdint>

#include "src/files/text.h"

namespace hybrid_trainer {

/// Calls f(character, begin, end) for each character of a text, which occupies [begin, end). A byte
/// that is not UTF-8 is passed with character.bytes = 0.
template <class F>
void for_each_character(std::string_view text, const F& f) {
  for (std::size_t begin = 0; begin < text.size();) {
    const CodePoint character = decode_utf8(text, begin);
    const std::size_t end = begin + std::max<std::size_t>(character.bytes, 1);
    f(character, begin, end);
    begin = end;
  }
}

/// Returns the character at `place`, or its byte if it is not UTF-8.
inline std::string_view character_at(std::string_view text, std::size_t place) {
  return text.substr(place, std::max<std::size_t>(decode_utf8(text, place).bytes, 1));
}

/// Returns the last character of a text, which must not be empty, or its last byte if it is not
/// UTF-8.
inline std::string_view final_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && is_continuation(text[begin])) --begin;
  const std::string_view last = text.substr(begin);
  return decode_utf8(last, 0).bytes == last.size() ? last : text.substr(text.size() - 1);
}

/// Classes of code points as in Hugging Face's tokenizers (see unicode_classes.py).
enum UnicodeClass : std::uint8_t {
  kLetter = 1,          // \p{L} in their patterns (Unicode 16)
  kNumber = 2,          // \p{N} in their patterns (Unicode 16)
  kWhiteSpace = 4,      // \s: the 25 white-space characters
  kDigit = 8,           // split by the pre-tokenizer Digits (Unicode 17)
  kWordCharacter = 16,  // \w, for tokens that match only whole words
  kUnknownToNfc = 32,   // newer than the tokenizers' NFC (Unicode 9), so NFC does not change it
  kNewToPcre2 = 64,     // newer than PCRE2's Unicode 14, or in another class there
};

/// Returns the classes of every code point up to U+10FFFF, as bits. Thread-safe.
const std::uint8_t* unicode_classes();

inline bool is_white_space(char32_t value) { return (unicode_classes()[value] & kWhiteSpace) != 0; }

/// Traits of code points that normalizers and pre-tokenizers of encoders use.
enum CharacterTrait : std::uint8_t {
  kNonspacingMark = 1,  // dropped by BertNormalizer (Unicode 8)
  kMark = 2,            // dropped by StripAccents (Unicode 9)
  kPunctuation = 4,     // split by Punctuation and BertPreTokenizer (Unicode 8)
  kControl = 8,         // dropped by BertNormalizer
  /// Newer than the tokenizers' NFKC and NFKD (Unicode 9), so these do not change it.
  kUnknownToNfkc = 16,
};

/// Returns the traits of every code point up to U+10FFFF, as bits. Thread-safe.
const std::uint8_t* character_traits();

/// Replaces characters that are new to PCRE2 by older characters of the same category and length.
/// If there are any, the result is stored in `copy`. `text` must be UTF-8.
std::string_view known_to_pcre2(std::string_view text, std::string& copy);

/// A text with only characters below this one is always in normalization form C.
inline constexpr char32_t kFirstComposing = 0x300;

/// Returns a text in a normalization form as Hugging Face's tokenizers computes it with Unicode 9:
/// newer characters do not change. Keeps bytes that are not UTF-8.
std::string to_form(std::string_view text, UnicodeForm form);

/// Returns the lower case of each character, regardless of its neighbors.
std::string lowercased(std::string_view text);

}  // namespace hybrid_trainer
