#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "src/data/series/series.h"
#include "src/files/json.h"

namespace hybrid_trainer {

SeriesScale scale_of(const SeriesTable& table, const std::vector<bool>& uses) {
  SeriesScale scale;
  for (std::int64_t column = 0; column < table.width(); ++column) {
    double count = 0, mean = 0, squares = 0;  // Welford's sums
    for (std::int64_t row = 0; row < table.rows(); ++row) {
      if (!uses[static_cast<std::size_t>(row)]) continue;
      const double away = table.row(row)[column] - mean;
      mean += away / ++count;
      squares += away * (table.row(row)[column] - mean);
    }
    const double deviation = count > 0 ? std::sqrt(squares / count) : 0;
    if (!std::isfinite(deviation))
      throw DataError(concat("column ", table.columns[static_cast<std::size_t>(column)],
                             ": its numbers are so large that their variance is not finite; divide "
                             "them by a power of ten"));
    scale.columns.push_back({mean, deviation > 0 ? deviation : 1});
  }
  return scale;
}

std::string text_of(const SeriesScale& scale) {
  std::string text;
  for (const SeriesScale::Column& column : scale.columns)
    text += concat(text.empty() ? "" : ",", shortest(column.mean), "/", shortest(column.deviation));
  return text;
}

SeriesScale scale_from(const std::string& text, std::int64_t columns, const std::string& key) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  SeriesScale scale;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(
        {concat(key, ": got \"", text, "\", ", why, "; want MEAN/DEVIATION for each of ", columns,
                " columns, separated by commas; leave it out to compute them from the data")});
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string part = text.substr(begin, text.find(',', begin) - begin);
    begin += part.size() + 1;
    const std::size_t slash = part.find('/');
    const double mean = plain_number(part.substr(0, slash)).value_or(kNone);
    const double deviation =
        slash == part.npos ? kNone : plain_number(part.substr(slash + 1)).value_or(kNone);
    if (std::isnan(mean) || !(deviation > 0))
      refuse(concat("in which \"", part, "\" is not MEAN/DEVIATION"));
    scale.columns.push_back({mean, deviation});
  }
  if (std::ssize(scale.columns) != columns)
    refuse(concat("which has ", scale.columns.size(), " columns"));
  return scale;
}

SeriesWindows windows_of(const SeriesTable& table, std::int64_t length, double held_out) {
  SeriesWindows windows;
  windows.training_rows.resize(static_cast<std::size_t>(table.rows()));
  std::int64_t longest = 0;  // rows without a gap
  for (std::size_t i = 0; i < table.starts.size(); ++i) {
    const std::int64_t begin = table.starts[i];
    const std::int64_t end = i + 1 < table.starts.size() ? table.starts[i + 1] : table.rows();
    const std::int64_t border =
        end - static_cast<std::int64_t>(held_out * static_cast<double>(end - begin));
    std::fill(windows.training_rows.begin() + begin, windows.training_rows.begin() + border, true);
    auto gap = std::ranges::upper_bound(table.gaps, begin);
    for (std::int64_t first = begin, next = begin; first < end; first = next) {
      next = gap != table.gaps.end() ? std::min(*gap++, end) : end;
      longest = std::max(longest, next - first);
      for (std::int64_t row = first; row + length <= std::min(next, border); ++row)
        windows.training.push_back(row);
      for (std::int64_t row = std::max(first, border); row + length <= next; ++row)
        windows.validation.push_back(row);
    }
  }
  const auto refuse = [&](const char* what) {
    throw DataError(concat(
        "no window of ", length, " rows for ", what, ": the longest part of a series without a ",
        "gap has ", longest, " rows",
        held_out < 1 ? concat(", and the last ", brief(100 * held_out),
                              " % of each series are for validation (data.validation_fraction)")
                     : "",
        table.time.empty() ? ""
                           : concat("; gaps are found in column ", table.time,
                                    " (time=OTHER uses another column, time= none)"),
        "; want longer series, or a shorter window by data.sequence_length"));
  };
  if (windows.training.empty() && held_out < 1) refuse("training");
  if (windows.validation.empty() && held_out > 0) refuse("validation");
  return windows;
}

Batch SeriesExamples::empty_batch(std::int64_t examples, const Stream& stream) const {
  const auto tensor = [&](const Shape& shape) {
    return Tensor::empty(shape, DType::kF32, MemoryKind::kData, stream);
  };
  return Batch({{"kinematics", tensor({examples, length_, table_->width() - 1})},
                {"value", tensor({examples, 1})}});
}

void SeriesExamples::write(std::int64_t number, const ExampleMemory& memory) const {
  const std::int64_t inputs = table_->width() - 1;
  const std::int64_t row = windows_[static_cast<std::size_t>(number)];
  const auto scaled = [&](std::int64_t from, std::int64_t column) {
    return static_cast<float>(
        scale_.scaled(static_cast<std::size_t>(column), table_->row(from)[column]));
  };
  float* value = memory.floats("kinematics").data();
  for (std::int64_t t = 0; t < length_; ++t)
    for (std::int64_t c = 0; c < inputs; ++c) *value++ = scaled(row + t, c);
  memory.floats("value")[0] = scaled(row + length_ - 1, inputs);
}

}  // namespace hybrid_trainer
