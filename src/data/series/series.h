#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/data/dataset.h"

namespace hybrid_trainer {

/// A finite number such as "-1.5e3", with spaces around it; none where the text is something else.
std::optional<double> plain_number(const std::string& text);

/// Which columns of a table are the measurements of a series, and which one is to be predicted.
struct SeriesColumns {
  std::vector<std::string> inputs;
  std::string target;
  std::string series;      // column that names a row's series; empty: one series
  std::string time;        // column whose gaps no window crosses
  bool finds_time = true;  // without `time`, by its name

  SeriesColumns() = default;
  /// Of "speed,height,target=fuel,series=flight,time=second"; "time=" looks for none. Throws ConfigError, which names `key`, if
  /// there is no input or no target, a column stands there twice, or the target is among the inputs.
  explicit SeriesColumns(const std::string& text, const std::string& key = "data.columns");
};

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

/// Mean and standard deviation of each column, by which a network sees its numbers: (x − mean)/deviation.
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

/// Of the rows that `uses` picks. A column that is always the same has the deviation 1.
SeriesScale scale_of(const SeriesTable& table, const std::vector<bool>& uses);

/// "8/5.4,3/1": the mean and the deviation of each column, read back to the same bits.
std::string text_of(const SeriesScale& scale);
/// Throws ConfigError, which names `key`, where the text is no scale of so many columns.
SeriesScale scale_from(const std::string& text, std::int64_t columns, const std::string& key);

/// All windows of T rows that a table has, none across a gap or the border of two series. The last
/// `held_out` of each series' rows are for validation alone.
struct SeriesWindows {
  std::vector<std::int64_t> training, validation;  // first rows
  std::vector<bool> training_rows;
};

/// `held_out` may be all (1). Throws DataError where no window, of either kind that is wanted, fits.
SeriesWindows windows_of(const SeriesTable& table, std::int64_t length, double held_out);

/// Windows of a table: "kinematics" (B, T, inputs) and "value" (B, 1), the target of the last row, both
/// scaled. The table must outlive it.
class SeriesExamples final : public Dataset {
 public:
  /// `windows`: their first rows; `length`: their rows.
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
