#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/data/batch_loader.h"

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
class WindowReader {
 public:
  WindowReader(const SeriesTable& table, const SeriesScale& scale, std::int64_t length)
      : table_(&table), scale_(scale), length_(length) {}
  Batch empty_batch(std::int64_t examples, const Stream& stream) const;
  /// Writes the window that begins with a row.
  void write(const Batch& memory, std::int64_t example, std::int64_t row) const;

 private:
  const SeriesTable* table_;
  SeriesScale scale_;
  std::int64_t length_;
};

/// Batches of training windows, each epoch in another order, which follows from the seed.
class SeriesBatches final : public BatchSource {
 public:
  SeriesBatches(const WindowReader& reader, std::vector<std::int64_t> windows,
                std::int64_t batch_size, std::uint64_t seed)
      : reader_(reader), windows_(std::move(windows)), batch_size_(batch_size), seed_(seed) {}
  Batch empty_batch(const Stream& stream) const override {
    return reader_.empty_batch(batch_size_, stream);
  }
  std::int64_t epochs_in(std::int64_t batches) const override {
    return batches * batch_size_ / static_cast<std::int64_t>(windows_.size());
  }
  Batch read(std::int64_t batch_index, const Batch& memory) const override;

 private:
  WindowReader reader_;
  std::vector<std::int64_t> windows_;
  std::int64_t batch_size_;
  std::uint64_t seed_;
};

/// All windows of validation, in order; the last batch may be smaller.
class SeriesEvaluation final : public EvaluationBatches {
 public:
  SeriesEvaluation(const WindowReader& reader, std::vector<std::int64_t> windows,
                   std::int64_t batch_size, const Stream& stream);
  std::int64_t batches() const override;
  Batch batch(std::int64_t index) override;

 private:
  WindowReader reader_;
  std::vector<std::int64_t> windows_;
  Batch memory_;
};

}  // namespace hybrid_trainer
