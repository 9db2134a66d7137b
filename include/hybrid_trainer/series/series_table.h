#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hybrid_trainer/series/series_columns.h"

namespace hybrid_trainer {

/// The rows of a table, or of a folder's tables one behind the other, as numbers.
struct SeriesTable {
  std::vector<std::string> columns;   // inputs, then the target
  std::vector<double> values;         // (rows, columns)
  std::vector<std::int64_t> starts;   // rows where a series begins, ascending, the first one 0
  std::vector<std::int64_t> gaps;     // rows before which some are missing, ascending
  std::vector<std::int64_t> numbers;  // of each row in the files, from 1
  std::string time{};                 // time column by which gaps were found; empty: none
  std::vector<std::string> notes;     // rows that were left out, and what was found in time

  std::int64_t width() const { return static_cast<std::int64_t>(columns.size()); }
  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / width(); }
  const double* row(std::int64_t index) const { return values.data() + index * width(); }
};

/// Reads CSV, JSON lines or parquet. Each file begins a series. A row with a cell that is missing or no
/// finite number is left out. If columns.time is empty, a column of a usual name whose steps are mostly
/// equal is taken for the time, except of parquet. Rows are in order of time if the newest one is first, and
/// rows of series that take turns are grouped. Throws MissingInput, MissingColumn, DataError if no
/// more than half of the rows can be used, which names file, line (or row below the names) and column of
/// the first that cannot, or columns.time is in no order, IoError.
SeriesTable read_series(const std::filesystem::path& path, const SeriesColumns& columns);

}  // namespace hybrid_trainer
