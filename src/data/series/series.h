#pragma once

#include <filesystem>

#include "hybrid_trainer/data/dataset.h"

namespace hybrid_trainer {

/// Parses a finite number such as "-1.5e3", with optional spaces around it, or returns nullopt.
std::optional<double> plain_number(const std::string& text);

struct SeriesColumns {
  std::vector<std::string> inputs;
  std::string target;
  /// Column with the name of a row's series; empty if all rows are one series.
  std::string series;
  std::string time;          // time column; no window crosses a gap in it
  bool detects_time = true;  // if `time` is empty, find it by its name

  SeriesColumns() = default;
  /// Parses "speed,height,target=fuel,series=flight,time=second"; "time=" disables the search for a
  /// time column. Throws ConfigError naming `key` for missing, repeated or conflicting columns.
  explicit SeriesColumns(const std::string& text, const std::string& key = "data.columns");
};

/// The rows of a table as numbers, or the rows of all tables in a folder, concatenated.
struct SeriesTable {
  std::vector<std::string> columns;   // inputs, then the target
  std::vector<double> values;         // (rows, columns)
  std::vector<std::int64_t> starts;   // first row of each series, ascending from 0
  std::vector<std::int64_t> gaps;     // indices of rows that follow missing rows, ascending
  std::vector<std::int64_t> numbers;  // row numbers in the files, counted from 1
  /// Time column that was searched for gaps; empty if there is none.
  std::string time{};
  std::vector<std::string> notes;  // notes on skipped rows and on the time column

  std::int64_t width() const { return static_cast<std::int64_t>(columns.size()); }
  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / width(); }
  const double* row(std::int64_t index) const { return values.data() + index * width(); }
};

/// Reads CSV, JSON lines or Parquet. Each file begins a new series. Skips rows with a missing or
/// non-finite number. If columns.time is empty, uses a column with a common name and mostly equal
/// steps, except in Parquet files. Reverses rows if the newest is first, and groups interleaved
/// series. Throws DataError naming the first unusable row if at most half of the rows are usable or
/// columns.time is not ordered. Also throws MissingInput, MissingColumn and IoError.
SeriesTable read_series(const std::filesystem::path& path, const SeriesColumns& columns);

/// Mean and standard deviation of each column. The input of a network is (x − mean)/deviation.
struct SeriesScale {
  struct Column {
    double mean = 0, deviation = 1;
    bool operator==(const Column&) const = default;
  };
  std::vector<Column> columns;  // in the order of SeriesTable::columns
  bool operator==(const SeriesScale&) const = default;

  double scaled(std::size_t column, double value) const {
    return (value - columns[column].mean) / columns[column].deviation;
  }
};

/// Computes the scale of the rows selected by `uses`. A constant column has deviation 1.
SeriesScale scale_of(const SeriesTable& table, const std::vector<bool>& uses);

/// Returns mean and deviation as text, "8/5.4,3/1", which scale_from reads exactly.
std::string text_of(const SeriesScale& scale);
/// Parses a scale. Throws ConfigError naming `key` if the text is not a scale of `columns` columns.
SeriesScale scale_from(const std::string& text, std::int64_t columns, const std::string& key);

/// First rows of all windows of T rows in a table. No window crosses a gap or the end of a series.
/// The last `held_out` share of each series is for validation only.
struct SeriesWindows {
  std::vector<std::int64_t> training, validation;  // first rows of the windows
  std::vector<bool> training_rows;
};

/// `held_out` may be 1. Throws DataError if a split with a share above 0 has no window.
SeriesWindows windows_of(const SeriesTable& table, std::int64_t length, double held_out);

/// Dataset of a table's windows: "kinematics" (B, T, inputs) and "value" (B, 1), the target of the
/// last row, both scaled. The table must outlive the dataset.
class SeriesExamples final : public Dataset {
 public:
  SeriesExamples(const SeriesTable& table, const SeriesScale& scale, std::int64_t length,
                 std::vector<std::int64_t> windows)
      : table_(&table), scale_(scale), length_(length), windows_(std::move(windows)) {}
  std::int64_t size() const override { return std::ssize(windows_); }
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override;
  void write(std::int64_t number, const ExampleMemory& memory) const override;

 private:
  const SeriesTable* table_;
  SeriesScale scale_;
  std::int64_t length_;
  std::vector<std::int64_t> windows_;
};

}  // namespace hybrid_trainer
