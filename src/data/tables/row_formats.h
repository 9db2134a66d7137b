#pragma once

#include <boost/json/object.hpp>
#include <functional>

#include "src/data/parquet/parquet_file.h"

namespace hybrid_trainer {

/// Reads a table by RFC 4180: the first line has the names; cells in quotes may have separators,
/// line breaks and doubled quotes; lines end with LF, CRLF or, in old files, CR. A quote inside a cell
/// that does not begin with one is text. Empty lines are skipped. Cells are separated by commas, tabs,
/// semicolons or bars: by what gives the first line names that are wanted, then by what gives most of the
/// first rows as many cells as names; or by what a line "sep=;" before the names says.
class CsvRows {
 public:
  struct Cell {
    std::string text;
    bool is_quoted = false;  // an empty cell without quotes holds nothing
  };
  /// `path` is for messages. Throws DataError where a name stands twice.
  CsvRows(std::string_view content, std::string path, const std::vector<std::string>& wanted = {});

  const std::vector<std::string>& names() const { return names_; }
  /// Reads the next row; false at the end. Its number of cells may differ from that of the names.
  /// Throws DataError where a quote does not end.
  bool next(std::vector<Cell>& cells);

 private:
  CsvRows(std::string_view content, char separator) : rest_(content), separator_(separator) {}
  static char separator_of(std::string_view content, const std::vector<std::string>& wanted);
  void read_cell(Cell& cell);

  std::string_view rest_;
  std::string path_{};
  char separator_ = ',';
  std::int64_t row_ = 0;
  std::vector<std::string> names_;
};

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

/// "has the columns a, b, and none of text, …; …".
std::string no_wanted_column(const std::vector<std::string>& columns,
                             const std::vector<std::string>& wanted, const std::string& renaming);

/// Calls f(number, row) for each row of a table, from 1 on; of its columns those that are wanted, or
/// all if `wanted` is empty. `renaming`: see TableReading. A struct becomes an object, a map whose keys are texts too; what
/// cannot be read inside a column is left out. Throws DataError, which names the file: where a wanted
/// column cannot be read or none is there, a text is not UTF-8 unless takes_bytes, or the file is damaged.
void read_parquet_rows(const ParquetFile& file, const std::vector<std::string>& wanted,
                       const std::function<void(std::int64_t, boost::json::object&)>& f,
                       const std::string& renaming = {}, bool takes_bytes = false);

}  // namespace hybrid_trainer
