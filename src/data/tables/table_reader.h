#pragma once

#include <cstdint>
#include <functional>

#include "hybrid_trainer/core/error.h"
#include "src/files/json.h"

namespace hybrid_trainer {

/// Names that rows are read by, and their columns in a file.
class ColumnNames {
 public:
  struct Name {
    std::string name, column;  // no column: the name is unused
  };
  ColumnNames() = default;
  explicit ColumnNames(std::vector<Name> names) : names_(std::move(names)) {}
  /// Parses "prompt=question,completion=answer,text=". Throws ConfigError naming `key` for a
  /// missing or duplicate name.
  explicit ColumnNames(const std::string& text, const std::string& key = "data.columns");

  const std::vector<Name>& names() const { return names_; }
  /// Returns the column that is read by this name; "" for none.
  std::string column_of(const std::string& name) const;
  /// Moves the value of each column to its name. Looks up all columns first, so that two can be
  /// swapped. Returns the columns that others replaced by taking their names.
  std::vector<std::string> rename(boost::json::object& row) const;

 private:
  std::vector<Name> names_;
};

/// A file lacks a column with a required name.
class MissingColumn : public DataError {
 public:
  using DataError::DataError;
};

/// Format of rows in a file.
enum class RowContainer { kJsonLines, kJsonArray, kCsv, kParquet };
/// Returns "JSON lines", "JSON array", "CSV" or "parquet".
const char* name_of(RowContainer container);

/// Detected form of a file of rows.
struct TableForm {
  RowContainer container = RowContainer::kJsonLines;
  std::string array_key{};  // key, as JSON, of the array in the file's one object, or ""
  /// Names of ignored columns of a parquet table, or of ignored members next to the array.
  std::vector<std::string> unread{};
  /// Returns the unit of a row's number in messages: lines of JSON, or rows.
  const char* unit() const;
};

struct TableReading {
  ColumnNames columns{};
  /// Names to read. Other columns may be omitted from the rows; empty: reads all.
  std::vector<std::string> wanted{};
  std::string called{};       // the file's name in messages, if not its path
  bool renames = true;        // --columns renames columns to `wanted`; false: it lists `wanted`
  bool allows_bytes = false;  // texts of parquet may be bytes that are not UTF-8
  /// Value of --columns to suggest in messages; by default the first two of `wanted`.
  std::string renaming{};
};

struct TableVisitor {
  /// Takes a row after renaming, its number, and the integers that were not read exactly.
  std::function<void(std::int64_t number, const boost::json::object& row, const WideIntegers&)> row;
  /// Takes the number of an invalid row, and the reason.
  std::function<void(std::int64_t number, const std::string& reason)> refused;
};

/// Reads a file's rows in order: JSON objects, one per line, over several lines, or in an array
/// (see src/data/tables/row_formats.h); a table with commas, tabs, semicolons or bars, whose first
/// line has the names; or a parquet table. Numbers of rows start at 1 and count lines, elements of
/// an array, or rows after the names. Cells of a CSV table are texts, or null if empty and
/// unquoted. Needs memory for the whole text, or for a page of each column of a parquet table.
/// Throws MissingInput, DataError for other contents, MissingColumn if it lacks a column named in
/// reading.columns, IoError.
TableForm visit_rows(const std::filesystem::path& path, const TableReading& reading,
                     const TableVisitor& visitor);

}  // namespace hybrid_trainer
