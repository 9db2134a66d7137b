#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Classes of code points as Hugging Face's tokenizers has them (see unicode_classes.py).
enum UnicodeClass : std::uint8_t {
  kLetter = 1,          // \p{L} of its patterns (Unicode 16)
  kNumber = 2,          // \p{N} of its patterns (Unicode 16)
  kWhiteSpace = 4,      // \s: the 25 white-space characters
  kDigit = 8,           // what the pre-tokenizer Digits splits at (Unicode 17)
  kWordCharacter = 16,  // \w of a token that is a single word
  kUnknownToNfc = 32,   // newer than its NFC (Unicode 9), which leaves it where it is
  kNewToPcre2 = 64,     // newer than PCRE2's Unicode (14), or of another class there
};

/// The classes of every code point up to U+10FFFF, as bits. Thread-safe.
const std::uint8_t* unicode_classes();

inline bool is_white_space(char32_t value) { return (unicode_classes()[value] & kWhiteSpace) != 0; }

/// The text, which is UTF-8, with older characters of the same category and length in place of those
/// that are new to PCRE2. It lies in `copy` if there are any.
std::string_view known_to_pcre2(std::string_view text, std::string& copy);

/// Characters before this one are in form C, whatever of them follow each other.
inline constexpr char32_t kFirstComposing = 0x300;

/// A text in Unicode's normalization form C as Hugging Face's tokenizers makes it, whose Unicode is
/// 9: newer characters stay where they are. Bytes that are not UTF-8 are left alone.
std::string to_nfc(std::string_view text);

}  // namespace hybrid_trainer
