#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/python_json.h"
#include "hybrid_trainer/tables/column_names.h"

namespace hybrid_trainer {

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
/// src/tables/json_rows.h); a table with commas, tabs or semicolons, whose first line has the names;
/// or a parquet table. Numbers count from 1: lines, elements of an array, or rows below the names.
/// Cells of a CSV table are texts, or null where they are empty without quotes. Memory: the whole
/// text, or of parquet a page of each column. Throws MissingInput, DataError where the file holds
/// something else, MissingColumn where it lacks one that reading.columns names, IoError.
TableForm visit_rows(const std::filesystem::path& path, const TableReading& reading,
                     const TableVisitor& visitor);

}  // namespace hybrid_trainer
