#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

/// The text of one example, and its line in the file or, of an array, its place in it, from 1.
struct RowText {
  std::int64_t line = 0;
  std::string_view text;
};

struct RowTexts {
  std::vector<RowText> rows;
  bool are_of_array = false;
  std::string array_key;  // as JSON; of the array in the file's one object, or ""
};

/// The examples of a file: its lines, but for empty ones; or JSON objects one behind the other, that
/// go over several lines, each counted as the line where it begins; or the elements of the JSON array
/// that the file is, or that is the only list of objects in the one object that it is, as {"data":
/// […]}. What they hold is not looked at. `path` is for messages. Throws DataError where the array
/// does not end or lacks an element. The same where the one object has several such lists, and for
/// a table with commas or tabs (CSV).
RowTexts row_texts(std::string_view content, const std::filesystem::path& path);

}  // namespace hybrid_trainer
