#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// The longest start of a character by the rules of RFC 3629: no overlong forms, no surrogates, at
/// most U+10FFFF.
struct Utf8Prefix {
  std::size_t bytes = 0;   // that stand there; 1 where no character begins
  std::size_t length = 0;  // of the character that they begin; 0: none
};
/// At `position`, which is before the end of `text`.
Utf8Prefix utf8_prefix(std::string_view text, std::size_t position);

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  // 0: the bytes at this position are not UTF-8
};

/// The code point whose character is whole at `position`.
CodePoint decode_utf8(std::string_view text, std::size_t position);
void append_utf8(char32_t value, std::string& text);

/// Whether a byte can only be inside a UTF-8 character, not begin one.
inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }
/// Length of the longest prefix of `text`, of at most `limit` bytes, that cuts no character; if the
/// bytes there are not UTF-8, just `limit`.
std::size_t whole_characters(std::string_view text, std::size_t limit);

/// Bytes from `position` up to the first that is not UTF-8, or the end.
std::size_t valid_utf8_bytes(std::string_view text, std::size_t position);
/// The text, with U+FFFD in place of each byte that is not UTF-8.
std::string well_formed_utf8(std::string_view text);
/// Bytes from `position` up to the first position where a code point can be read, or the end.
std::size_t invalid_utf8_bytes(std::string_view text, std::size_t position);

}  // namespace hybrid_trainer
