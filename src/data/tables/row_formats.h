#pragma once

#include <boost/json/object.hpp>
#include <functional>

#include "src/data/parquet/parquet_file.h"

namespace hybrid_trainer {

/// Reads a table according to RFC 4180: the first line has the names; quoted cells may contain
/// separators, line breaks and doubled quotes; lines end with LF, CRLF or, in old files, CR. A
/// quote inside an unquoted cell is text. Skips empty lines. A line "sep=;" before the names gives
/// the separator. Otherwise it is the comma, tab, semicolon or bar for which the first line has the
/// most wanted names or, on a tie, for which most of the first rows have as many cells as there are
/// names.
class CsvRows {
 public:
  struct Cell {
    std::string text;
    bool is_quoted = false;  // an empty unquoted cell is null
  };
  /// `path` is for messages. Throws DataError for a duplicate name.
  CsvRows(std::string_view content, std::string path, const std::vector<std::string>& wanted = {});

  const std::vector<std::string>& names() const { return names_; }
  /// Reads the next row; returns false at the end. Its number of cells may differ from the number
  /// of names. Throws DataError for an unterminated quote.
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

/// The text of one row, and its line in the file or, in an array, its index from 1.
struct JsonRow {
  std::int64_t line = 0;
  std::string_view text;
};

struct JsonRows {
  std::vector<JsonRow> rows{};
  bool are_of_array = false;
  std::string array_key{};            // key, as JSON, of the array in the file's one object, or ""
  std::vector<std::string> others{};  // other members of that object
  bool holds_objects() const;         // whether a row begins like an object
  bool begins_with_object() const;    // whether the first row does
};

/// Returns the rows of a file: its non-empty lines; or consecutive JSON objects that span several
/// lines, each numbered by its first line; or the elements of a JSON array. The array is the whole
/// file, or the only list of objects in its one object, as in {"data": […]}. An object with a
/// `wanted` member is a row and not such a wrapper. `path` is for messages. Throws DataError if the
/// array does not end or lacks an element, its elements are lists or the messages of one chat, or
/// the one object has several lists or is a table by columns.
JsonRows json_rows(std::string_view content, const std::string& path,
                   const std::vector<std::string>& wanted);

/// Returns "has the columns a, b, and none of text, …; …".
std::string no_wanted_column(const std::vector<std::string>& columns,
                             const std::vector<std::string>& wanted, const std::string& renaming);

/// Calls f(number, row) for each row of a table, numbered from 1, with the wanted columns, or all
/// if `wanted` is empty. For `renaming` see TableReading. Structs become objects, and so do maps
/// whose keys are texts. Omits unsupported parts of a column. Throws DataError naming the file if a
/// wanted column is unsupported or none exists, a text is not UTF-8 unless allows_bytes, or the
/// file is damaged.
void read_parquet_rows(const ParquetFile& file, const std::vector<std::string>& wanted,
                       const std::function<void(std::int64_t, boost::json::object&)>& f,
                       const std::string& renaming = {}, bool allows_bytes = false);

}  // namespace hybrid_trainer
