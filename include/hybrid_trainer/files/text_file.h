#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace hybrid_trainer {

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

/// The file's text in UTF-8, without a byte-order mark; UTF-16 with a mark is decoded, and a warning
/// says so. Throws what read_file and refuse_container throw.
std::string read_text(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace hybrid_trainer
