#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hybrid_trainer/series/series_columns.h"

namespace hybrid_trainer {

/// The rows of a table, or of a folder's tables one behind the other, as numbers.
struct SeriesTable {
  std::vector<std::string> columns;  // inputs, then the target
  std::vector<double> values;        // (rows, columns)
  std::vector<std::int64_t> starts;  // rows where a series begins, ascending, the first one 0

  std::int64_t width() const { return static_cast<std::int64_t>(columns.size()); }
  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / width(); }
  const double* row(std::int64_t index) const { return values.data() + index * width(); }
};

/// Reads CSV, JSON lines or parquet. Each file begins a series. Throws MissingInput, MissingColumn,
/// DataError that names file, line (or row below the names) and column of a cell that is missing or no finite number, IoError.
SeriesTable read_series(const std::filesystem::path& path, const SeriesColumns& columns);

}  // namespace hybrid_trainer
