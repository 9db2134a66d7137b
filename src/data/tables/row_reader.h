#pragma once

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/random.h"
#include "src/data/tables/row_files.h"
#include "src/data/tables/table_reader.h"

namespace hybrid_trainer {

struct RowFile {
  std::filesystem::path path;
  TableForm form;
};

/// The row files that were read, and their rejected rows, in order.
struct ReadRows {
  struct Refusal {
    std::int64_t line = 0;
    std::string reason;
    std::size_t file = 0;
  };
  std::vector<RowFile> files{};
  std::vector<Refusal> refused{};

  /// Returns "line 3" or "row 3", with the file's name if requested or if there are several files.
  std::string place(std::size_t file, std::int64_t line, bool names_file) const;
};

/// A row after renaming, and its location.
struct GivenRow {
  const boost::json::object& object;
  const WideIntegers& wide;
  const std::string& called;  // the file's name in messages
  std::size_t file = 0;       // index in ReadRows::files
  std::int64_t line = 0;
};

struct RowSchema {
  std::string rows;               // name of the rows in messages, for example "clips"
  std::vector<std::string> keys;  // keys that are read
  bool is_closed = true;          // prints a warning about other keys
  bool allows_bytes = false;      // texts of a Parquet file may be invalid UTF-8
  std::string renaming{};         // see TableReading
  /// Reading stops after `max_rejected` rejections if at most this share of rows was used.
  std::size_t max_rejected = 1000;
  double used_share = 0;
  /// Uses a row. Rejects it by throwing DataError or MissingInput.
  std::function<void(const GivenRow& row)> use;
};

struct RowSource {
  const std::filesystem::path& path;  // a file, or a folder of files
  const ColumnNames& columns;
  std::string called{};               // the file's name in messages; empty for its path
  RowSplit split = RowSplit::kTrain;  // files to read in a folder
};

/// Reads a file of rows, or the files of a folder sorted by name (row_files, visit_rows), and
/// appends to `read`. Throws DataError if there are no rows or most rows are rejected. Also throws
/// MissingInput and IoError.
void read_rows(const RowSource& source, const RowSchema& schema, ReadRows& read);

template <class Row>
struct DividedRows {
  std::vector<Row> train, validation;
  bool are_same = false;  // both lists have all rows
};

/// Holds out a share of the rows, at least one, by a random selection that depends only on their
/// number. For a single row, or a share of 0, both lists contain all rows.
template <class Row>
DividedRows<Row> divided(std::vector<Row> rows, double share, std::uint64_t key) {
  const auto count = static_cast<std::uint64_t>(rows.size());
  if (count == 1 || share == 0) return {rows, rows, true};
  const auto held = static_cast<std::uint64_t>(std::clamp(
      std::round(static_cast<double>(count) * share), 1.0, static_cast<double>(count - 1)));
  DividedRows<Row> parts;
  for (std::uint64_t i = 0; i < count; ++i)
    (random_permuted({0, 0, key}, i, count) < held ? parts.validation : parts.train)
        .push_back(std::move(rows[i]));
  return parts;
}

/// Returns the file that a row has under `name`; paths are relative to folder_of_rows.
FilePart file_in_row(FilesInRows& files, const GivenRow& row, std::string_view name,
                     const RowFileWords& words, const ReadRows& read);

}  // namespace hybrid_trainer
