#include "hybrid_trainer/series/series_scale.h"

#include <boost/json.hpp>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"

namespace hybrid_trainer {

namespace json = boost::json;

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
    scale.columns.push_back(
        {table.columns[static_cast<std::size_t>(column)], mean, deviation > 0 ? deviation : 1});
  }
  return scale;
}

void write_scale(const SeriesScale& scale, const std::filesystem::path& path) {
  json::array columns;
  for (const SeriesScale::Column& column : scale.columns)
    columns.push_back(json::object{
        {"name", column.name}, {"mean", column.mean}, {"deviation", column.deviation}});
  replace_file(path, pretty_json(json::object{{"columns", std::move(columns)}}) + "\n");
}

SeriesScale read_scale(const std::filesystem::path& path) {
  const json::value read = read_json(path);
  SeriesScale scale;
  try {
    for (const json::value& column : read.at("columns").as_array())
      scale.columns.push_back({std::string(column.at("name").as_string()),
                               column.at("mean").to_number<double>(),
                               column.at("deviation").to_number<double>()});
  } catch (const std::exception&) {
    throw DataError(concat(path.string(),
                           ": want {\"columns\": [{\"name\": …, \"mean\": …, \"deviation\": …}]}"));
  }
  return scale;
}

}  // namespace hybrid_trainer
