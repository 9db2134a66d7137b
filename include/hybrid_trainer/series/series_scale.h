#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hybrid_trainer/series/series_table.h"

namespace hybrid_trainer {

/// Mean and standard deviation of each column, by which a network sees its numbers: (x − mean)/deviation.
struct SeriesScale {
  struct Column {
    std::string name;
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

/// Writes {"columns": [{"name": …, "mean": …, "deviation": …}]}. Throws IoError.
void write_scale(const SeriesScale& scale, const std::filesystem::path& path);
/// Throws MissingInput, DataError.
SeriesScale read_scale(const std::filesystem::path& path);

}  // namespace hybrid_trainer
