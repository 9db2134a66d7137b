#include "hybrid_trainer/series/series_scale.h"

#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "src/series/plain_number.h"

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
                             ": its numbers are so large that their variance is no finite number; "
                             "divide them by a power of ten"));
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
        {concat(key, ": got \"", text, "\", ", why, "; want MEAN/DEVIATION of each column, ",
                columns, " with commas between; leave it out to take those of the data")});
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string part = text.substr(begin, text.find(',', begin) - begin);
    begin += part.size() + 1;
    const std::size_t slash = part.find('/');
    const double mean = plain_number(part.substr(0, slash)).value_or(kNone);
    const double deviation =
        slash == part.npos ? kNone : plain_number(part.substr(slash + 1)).value_or(kNone);
    if (std::isnan(mean) || !(deviation > 0)) refuse(concat("of which \"", part, "\" is none"));
    scale.columns.push_back({mean, deviation});
  }
  if (std::ssize(scale.columns) != columns) refuse(concat("which has ", scale.columns.size()));
  return scale;
}

}  // namespace hybrid_trainer
