#pragma once

#include <cstdint>
#include <functional>

#include "hybrid_trainer/core/error.h"
#include "src/files/json.h"

namespace hybrid_trainer {

/// Names by which rows are read, with the columns that have them in a file.
class ColumnNames {
 public:
  struct Name {
    std::string name, column;  // no column: nothing goes by the name
  };
  ColumnNames() = default;
  explicit ColumnNames(std::vector<Name> names) : names_(std::move(names)) {}
  /// Of "prompt=question,completion=answer,text=". Throws ConfigError, which names `key`, where a name
  /// is missing or stands twice.
  explicit ColumnNames(const std::string& text, const std::string& key = "data.columns");

  const std::vector<Name>& names() const { return names_; }
  /// The column that is read by this name; "" for none.
  std::string column_of(const std::string& name) const;
  /// Gives each name what its column holds, and takes the column out. All columns are looked up
  /// before, so that two may change places. Returns the columns whose names others take, which go.
  std::vector<std::string> rename(boost::json::object& row) const;

 private:
  std::vector<Name> names_;
};

/// A file has no column of a name that is to be read.
class MissingColumn : public DataError {
 public:
  using DataError::DataError;
};

/// How rows stand in a file.
enum class RowContainer { kJsonLines, kJsonArray, kCsv, kParquet };
/// "JSON lines", "JSON array", "CSV", "parquet".
const char* name_of(RowContainer container);

/// What a file of rows turned out to be.
struct TableForm {
  RowContainer container = RowContainer::kJsonLines;
  std::string array_key{};  // as JSON; of the array in the file's one object, or ""
  /// Names of what stands beside the rows or columns that were read: columns of a parquet table, and
  /// members of the object that holds the array.
  std::vector<std::string> unread{};
  /// What a number counts in messages: lines of JSON, or rows.
  const char* unit() const;
};

struct TableReading {
  ColumnNames columns{};
  /// Names that are looked at. Other columns may be left out of the rows; empty: all are read.
  std::vector<std::string> wanted{};
  std::string called{};      // the file's name in messages, if that is not its path
  bool renames = true;       // --columns gives `wanted` other names; else it names them itself
  bool takes_bytes = false;  // texts of parquet may be bytes that are no UTF-8
  /// Value of --columns that messages suggest; by default the first two of `wanted`.
  std::string renaming{};
};

struct TableVisitor {
  /// Takes a row, renamed, with its number and the integers that were not read exactly.
  std::function<void(std::int64_t number, const boost::json::object& row, const WideIntegers&)> row;
  /// Takes what is no row, and why.
  std::function<void(std::int64_t number, const std::string& reason)> refused;
};

/// Reads a file's rows in order: JSON objects one a line, over several lines, or in an array (see
/// src/data/tables/row_formats.h); a table with commas, tabs or semicolons, whose first line has the names;
/// or a parquet table. Numbers count from 1: lines, elements of an array, or rows below the names.
/// Cells of a CSV table are texts, or null where they are empty without quotes. Memory: the whole
/// text, or of parquet a page of each column. Throws MissingInput, DataError where the file holds
/// something else, MissingColumn where it lacks one that reading.columns names, IoError.
TableForm visit_rows(const std::filesystem::path& path, const TableReading& reading,
                     const TableVisitor& visitor);

}  // namespace hybrid_trainer
