#pragma once

#include <cstdint>
#include <functional>

#include "hybrid_trainer/core/error.h"
#include "src/files/json.h"

namespace hybrid_trainer {

/// The fields that the program reads from a row, and the column of a file that contains each.
class ColumnNames {
 public:
  struct Name {
    std::string name, column;  // if `column` is empty, the name is not read
  };
  ColumnNames() = default;
  explicit ColumnNames(std::vector<Name> names) : names_(std::move(names)) {}
  /// Parses "prompt=question,completion=answer,text=". Throws ConfigError naming `key`.
  explicit ColumnNames(const std::string& text, const std::string& key = "data.columns");

  const std::vector<Name>& names() const { return names_; }
  std::string column_of(const std::string& name) const;
  /// Moves each column's value to its name; columns can be swapped. Returns the overwritten names.
  std::vector<std::string> rename(boost::json::object& row) const;

 private:
  std::vector<Name> names_;
};

/// Thrown if a file lacks a column with a required name.
class MissingColumn : public DataError {
 public:
  using DataError::DataError;
};

enum class RowContainer { kJsonLines, kJsonArray, kCsv, kParquet };
const char* name_of(RowContainer container);

struct TableForm {
  RowContainer container = RowContainer::kJsonLines;
  /// Key, as JSON, of the array of rows in the file's single object; otherwise empty.
  std::string array_key{};
  /// Ignored columns of a Parquet table, or ignored members next to the array.
  std::vector<std::string> unread{};
  /// Class names of parquet columns that store classes as indices (ClassLabel in Hugging Face's
  /// datasets), by column.
  std::map<std::string, std::vector<std::string>> class_names{};
  /// Returns the unit of a row's number in messages: lines of JSON, or rows.
  const char* unit() const;
};

struct TableReading {
  ColumnNames columns{};
  /// Names to read. Rows may omit other columns. If empty, reads all columns.
  std::vector<std::string> wanted{};
  std::string called{};  // the file's name in messages; empty for its path
  /// True if --columns renames columns to `wanted`; false if it lists `wanted`.
  bool renames = true;
  bool allows_bytes = false;  // texts of a Parquet file may be invalid UTF-8
  /// Value of --columns that messages suggest. If empty, they suggest the first two names of
  /// `wanted`.
  std::string renaming{};
};

struct TableVisitor {
  /// Called with each row after renaming, its number, and its integers that were not read exactly.
  std::function<void(std::int64_t number, const boost::json::object& row, const WideIntegers&)> row;
  /// Called with the number of each invalid row and the reason.
  std::function<void(std::int64_t number, const std::string& reason)> refused;
};

/// Reads a file's rows in order: JSON objects (see row_formats.h), a table with commas, tabs,
/// semicolons or bars and the names in its first line, or a Parquet table. Row numbers start at 1
/// and count lines, array elements, or rows after the names. Cells of a CSV table are texts; an
/// empty unquoted cell is null. Needs memory for the whole text, or for a page of each Parquet
/// column. Throws DataError for other contents, and MissingColumn if a column named in
/// reading.columns is missing. Also throws MissingInput and IoError.
TableForm visit_rows(const std::filesystem::path& path, const TableReading& reading,
                     const TableVisitor& visitor);

}  // namespace hybrid_trainer
