#pragma once

#include <boost/json/object.hpp>
#include <functional>

#include "src/data/parquet/parquet_file.h"

namespace hybrid_trainer {

/// Reads a table according to RFC 4180. The first line contains the column names. Quoted cells may
/// contain separators, line breaks and doubled quotes. Lines end with LF, CRLF or, in old files,
/// CR. A quote inside an unquoted cell is text. Skips empty lines. A line "sep=;" before the names
/// gives the separator. Otherwise the separator is the comma, tab, semicolon or bar with which the
/// first line has the most wanted names. On a tie, it is the character with which most of the first
/// rows have as many cells as there are names.
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
  /// Key, as JSON, of the array of rows in the file's single object; otherwise empty.
  std::string array_key{};
  std::vector<std::string> others{};  // other members of this object
  bool holds_objects() const;         // whether a row begins like an object
  bool begins_with_object() const;    // whether the first row begins like an object
};

/// Returns the rows of a file: its non-empty lines, consecutive JSON objects over several lines, or
/// the elements of an array. The array is the whole file, or the only list of objects in its single
/// object. An object with a `wanted` member is a row, not such a wrapper. `path` is for messages.
/// Throws DataError if the array is incomplete, its elements are lists or one chat's messages, or
/// the single object has several lists or is a table of columns.
JsonRows json_rows(std::string_view content, const std::string& path,
                   const std::vector<std::string>& wanted);

/// Returns the names of classes by column, from the metadata of Hugging Face's datasets.
std::map<std::string, std::vector<std::string>> class_names_in(const ParquetFile& file);

/// Returns "has the columns a, b, but none of text, …; …".
std::string no_wanted_column(const std::vector<std::string>& columns,
                             const std::vector<std::string>& wanted, const std::string& renaming);

/// Calls f(number, row) for each row, numbered from 1, with the wanted columns, or all if `wanted`
/// is empty. Structs, and maps with text keys, become objects. Omits unsupported parts of a column.
/// Throws DataError if a wanted column is unsupported, no wanted column exists, a text is not UTF-8
/// (unless allows_bytes is set), or the file is damaged.
void read_parquet_rows(const ParquetFile& file, const std::vector<std::string>& wanted,
                       const std::function<void(std::int64_t, boost::json::object&)>& f,
                       const std::string& renaming = {}, bool allows_bytes = false);

}  // namespace hybrid_trainer
