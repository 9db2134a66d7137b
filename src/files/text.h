#pragma once

#include <cstddef>
#include <filesystem>
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

/// Unicode's normalization forms of composed characters: C, or KC, which also replaces compatible
/// characters, such as ﬁ by fi.
enum class UnicodeForm { kC, kKC };

/// Brings UTF-8 text to a form. Takes O(n log n) time, however many marks follow each other.
std::string in_unicode_form(std::string_view text, UnicodeForm form);

/// A text without the spaces, tabs and line ends around it.
std::string_view trimmed(std::string_view text);

/// Files from others are not always plain UTF-8 text.

/// Byte-order mark before the text of a UTF-8 file that was saved on Windows.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Throws DataError where the first bytes of `path` are those of something that holds no plain text:
/// compressed data, a table, an archive, a pointer of Git LFS, UTF-32. It says what it is and how to
/// get the text.
void refuse_container(std::string_view begin, const std::filesystem::path& path);
/// Refuses such a file where nothing else reads it.
void refuse_container(const std::filesystem::path& path);

/// Whether the bytes begin with the mark of UTF-16.
bool is_utf16(std::string_view begin);

/// The text in UTF-8 of a file's bytes, without a byte-order mark; UTF-16 with a mark is decoded, and a
/// warning says so. Throws what refuse_container throws. `path` stands for the file in messages.
std::string text_of_bytes(std::string bytes, const std::filesystem::path& path);
/// Reads the text of a file. Throws what read_file and text_of_bytes throw.
std::string read_text(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace hybrid_trainer
