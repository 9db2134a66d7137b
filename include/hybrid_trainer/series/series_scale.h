#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/series/series_table.h"

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
