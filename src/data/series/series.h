#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/data/dataset.h"

namespace hybrid_trainer {

/// Parses a finite number such as "-1.5e3", with optional spaces around it; none for other text.
std::optional<double> plain_number(const std::string& text);

/// Roles of a table's columns: inputs, target, series and time.
struct SeriesColumns {
  std::vector<std::string> inputs;
  std::string target;
  std::string series;        // column that names a row's series; empty: one series
  std::string time;          // column whose gaps no window crosses
  bool detects_time = true;  // if `time` is empty, find it by its name

  SeriesColumns() = default;
  /// Parses "speed,height,target=fuel,series=flight,time=second"; "time=" disables the search for a
  /// time. Throws ConfigError naming `key` if there is no input or no target, a column is repeated,
  /// or the target is also an input.
  explicit SeriesColumns(const std::string& text, const std::string& key = "data.columns");
};

/// Rows of a table as numbers, or rows of all tables in a folder one after the other.
struct SeriesTable {
  std::vector<std::string> columns;   // inputs, then the target
  std::vector<double> values;         // (rows, columns)
  std::vector<std::int64_t> starts;   // first row of each series, ascending from 0
  std::vector<std::int64_t> gaps;     // rows with missing rows before them, ascending
  std::vector<std::int64_t> numbers;  // row numbers in the files, from 1
  std::string time{};                 // time column used to find gaps; empty: none
  std::vector<std::string> notes;     // skipped rows, and findings about the time

  std::int64_t width() const { return static_cast<std::int64_t>(columns.size()); }
  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / width(); }
  const double* row(std::int64_t index) const { return values.data() + index * width(); }
};

/// Reads CSV, JSON lines or Parquet. Each file begins a new series. Skips rows with a missing or
/// non-finite number. If columns.time is empty, uses a column with a usual name and mostly equal
/// steps as the time, except in Parquet. Reverses the rows if the newest is first, and groups the
/// rows of interleaved series. Throws MissingInput, MissingColumn, DataError with file, line (or
/// row number) and column of the first unusable row if at most half of the rows are usable or
/// columns.time is not ordered, IoError.
SeriesTable read_series(const std::filesystem::path& path, const SeriesColumns& columns);

/// Mean and standard deviation of each column. A network gets (x − mean)/deviation.
struct SeriesScale {
  struct Column {
    double mean = 0, deviation = 1;
    bool operator==(const Column&) const = default;
  };
  std::vector<Column> columns;  // of a SeriesTable
  bool operator==(const SeriesScale&) const = default;

  double scaled(std::size_t column, double value) const {
    return (value - columns[column].mean) / columns[column].deviation;
  }
};

/// Computes the scale of the rows selected by `uses`. A constant column has deviation 1.
SeriesScale scale_of(const SeriesTable& table, const std::vector<bool>& uses);

/// Returns "8/5.4,3/1": mean and deviation of each column, exact when read back.
std::string text_of(const SeriesScale& scale);
/// Parses a scale. Throws ConfigError naming `key` if the text is not a scale of `columns` columns.
SeriesScale scale_from(const std::string& text, std::int64_t columns, const std::string& key);

/// First rows of all windows of T rows in a table. No window crosses a gap or the end of a series.
/// The last `held_out` share of each series is for validation only.
struct SeriesWindows {
  std::vector<std::int64_t> training, validation;  // first rows
  std::vector<bool> training_rows;
};

/// Returns a table's windows; `held_out` may be 1. Throws DataError if a needed split has none.
SeriesWindows windows_of(const SeriesTable& table, std::int64_t length, double held_out);

/// Dataset of a table's windows: "kinematics" (B, T, inputs) and "value" (B, 1), the target of the
/// last row, both scaled. The table must outlive the dataset.
class SeriesExamples final : public Dataset {
 public:
  /// `windows` are the first rows of windows, `length` is the number of rows per window.
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
