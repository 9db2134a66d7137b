#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
