#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Longest prefix of a UTF-8 character (RFC 3629: shortest form, no surrogates, up to U+10FFFF).
struct Utf8Prefix {
  std::size_t bytes = 0;   // bytes of the prefix; 1 if no character begins here
  std::size_t length = 0;  // bytes of the whole character; 0 if no character begins here
};
/// Returns the prefix at `position`, which must be less than the size of `text`.
Utf8Prefix utf8_prefix(std::string_view text, std::size_t position);

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  // 0 if the bytes at this position are not UTF-8
};

/// Returns the code point at `position` if the text contains the whole character.
CodePoint decode_utf8(std::string_view text, std::size_t position);
void append_utf8(char32_t value, std::string& text);

/// Returns whether a byte can only occur inside a UTF-8 character and cannot begin one.
inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }
/// Returns the length of the longest prefix of `text` that has at most `limit` bytes and splits no
/// character. Returns `limit` if the bytes at `limit` are not UTF-8.
std::size_t whole_characters(std::string_view text, std::size_t limit);

/// Returns the number of bytes from `position` to the first byte that is not UTF-8, or to the end.
std::size_t valid_utf8_bytes(std::string_view text, std::size_t position);
/// Returns the text with each byte that is not UTF-8 replaced by U+FFFD.
std::string well_formed_utf8(std::string_view text);
/// Returns the number of bytes from `position` to the first valid code point, or the end.
std::size_t invalid_utf8_bytes(std::string_view text, std::size_t position);

/// Unicode's normalization forms C and D (composed and decomposed), and KC and KD, which also
/// replace compatible characters (ﬁ by fi).
enum class UnicodeForm { kC, kKC, kD, kKD };

/// Normalizes UTF-8 text. Takes O(n log n) time for any number of consecutive marks.
std::string in_unicode_form(std::string_view text, UnicodeForm form);

std::string_view trimmed(std::string_view text);

/// Files from other programs are not always plain UTF-8 text.

/// Byte-order mark of a UTF-8 file that was saved on Windows.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Throws DataError if `begin`, the first bytes of `path`, belong to compressed data, a table, an
/// archive, a Git LFS pointer or UTF-32. The message describes how to obtain the text.
void refuse_container(std::string_view begin, const std::filesystem::path& path);
/// Calls refuse_container with the file's first bytes, for formats that no other reader supports.
void refuse_container(const std::filesystem::path& path);

bool is_utf16(std::string_view begin);

/// Returns the UTF-8 text of a file's bytes, without a byte-order mark. Decodes UTF-16 with such a
/// mark, and warns about it. Throws like refuse_container. `path`: for messages.
std::string text_of_bytes(std::string bytes, const std::filesystem::path& path);
/// Reads the text of a file. Throws like read_file and text_of_bytes.
std::string read_text(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace hybrid_trainer
