#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

/// The text of one row, and its line in the file or, of an array, its place in it, from 1.
struct JsonRow {
  std::int64_t line = 0;
  std::string_view text;
};

struct JsonRows {
  std::vector<JsonRow> rows{};
  bool are_of_array = false;
  std::string array_key{};            // as JSON; of the array in the file's one object, or ""
  std::vector<std::string> others{};  // members of that object beside the array
  bool holds_objects() const;         // whether one of them begins as an object does
  bool begins_with_object() const;    // the first of them
};

/// The rows of a file: its lines, but for empty ones; or JSON objects one behind the other, that go
/// over several lines, each counted as the line where it begins; or the elements of the JSON array
/// that the file is, or that is the only list of objects in the one object that it is, as {"data":
/// […]}. An object with a member that is `wanted` is a row and no such wrapper. `path` is for messages.
/// Throws DataError if the array does not end or lacks an element, its elements are lists or the
/// messages of one chat, or the one object has several lists or is a table by columns.
JsonRows json_rows(std::string_view content, const std::string& path,
                   const std::vector<std::string>& wanted);

}  // namespace hybrid_trainer
