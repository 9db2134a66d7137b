#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

/// The text of one example, and its line in the file or, of an array, its place in it, from 1.
struct RowText {
  std::int64_t line = 0;
  std::string_view text;
};

/// Whether a file is a JSON array.
bool is_array(std::string_view content);

/// The examples of a file: its lines, but for empty ones, or the elements of the JSON array that it is.
/// What they hold is not looked at. Throws DataError where the array does not end or lacks an
/// element, or the file is a table with commas or tabs (CSV). `path` is for messages.
std::vector<RowText> row_texts(std::string_view content, const std::filesystem::path& path);

}  // namespace hybrid_trainer
