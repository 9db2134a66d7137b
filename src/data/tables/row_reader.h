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

/// Files of rows that were read, and the rows in them that cannot be used, in order.
struct ReadRows {
  struct Refusal {
    std::int64_t line = 0;
    std::string reason;
    std::size_t file = 0;
  };
  std::vector<RowFile> files{};
  std::vector<Refusal> refused{};

  /// "line 3", "row 3"; with the file's name, where that is asked for or there are several.
  std::string place(std::size_t file, std::int64_t line, bool names_file) const;
};

/// A row, renamed, and its place.
struct GivenRow {
  const boost::json::object& object;
  const WideIntegers& wide;
  const std::string& called;  // the file's name in messages
  std::size_t file = 0;       // in ReadRows::files
  std::int64_t line = 0;      // of its file, from 1; of an array its place, of a table its row
};

/// What the rows of one shape hold.
struct RowSchema {
  std::string rows;               // "clips", in messages
  std::vector<std::string> keys;  // that are looked at
  bool is_closed = true;          // a warning names other keys
  bool takes_bytes = false;       // texts of parquet may be bytes that are no UTF-8
  std::string renaming{};         // see TableReading
  /// Ends the reading of a file that is something else: after so many refusals, where no more rows are
  /// used than this share of them.
  std::size_t most_refused = 1000;
  double used_share = 0;
  /// Takes a row. It is refused if this throws DataError or MissingInput.
  std::function<void(const GivenRow& row)> use;
};

/// Where rows are, and by which names.
struct RowSource {
  const std::filesystem::path& path;  // a file, or a folder of files
  const ColumnNames& columns;
  std::string called{};               // the file's name in messages, if that is not its path
  RowSplit split = RowSplit::kTrain;  // of a folder, the files that are read
};

/// Reads a file of rows, or the files of a folder in order of their names (row_files, visit_rows), into
/// `read`. Throws MissingInput, DataError if there are no rows or most are refused, IoError.
void read_rows(const RowSource& source, const RowSchema& schema, ReadRows& read);

/// Rows to train on and rows to measure on.
template <class Row>
struct DividedRows {
  std::vector<Row> train, validation;
  bool are_same = false;  // both have all rows
};

/// Holds back a share of the rows, at least one, by a draw that depends on their number alone. Of a
/// single row, or a share of 0, all are in both.
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

/// The file that a row has under `name`; paths are relative to its file (folder_of_rows).
FilePart file_in_row(FilesInRows& files, const GivenRow& row, std::string_view name,
                     const RowFileWords& words, const ReadRows& read);

}  // namespace hybrid_trainer
