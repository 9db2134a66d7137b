#include <algorithm>
#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/data/series/series.h"
#include "src/files/checksum.h"
#include "src/tasks/network_data.h"

namespace hybrid_trainer {

namespace {

class SeriesData final : public NetworkData {
 public:
  explicit SeriesData(const NetworkDataSource& source)
      : path_(source.data),
        table_(read_series(path_, SeriesColumns(source.config.data.columns))),
        is_measured_(source.is_measured) {}

  std::string description() const override {
    return concat(path_.string(), ": ", table_.rows(), " rows of ", table_.width() - 1,
                  " measurements in ", table_.starts.size(), " series; the target is ",
                  table_.columns.back());
  }
  HybridTrainerConfig completed(HybridTrainerConfig config) const override {
    SeriesConfig& series = config.model.series;
    const std::int64_t channels = table_.width() - 1;
    if (series.channels != 0 && series.channels != channels)
      throw ConfigError({concat("model.series.channels: got ", series.channels,
                                ", but data.columns names ", channels, " columns; leave it out")});
    series.channels = channels;
    config.model.context = config.data.sequence_length;
    if (series.scale.empty())
      series.scale = text_of(scale_of(table_, windows(config).training_rows));
    scale(config);  // validates the scale
    return config;
  }
  DatasetPart training(const HybridTrainerConfig& config) const override {
    return examples_of(config, windows(config).training);
  }
  DatasetPart validation(const HybridTrainerConfig& config) const override {
    SeriesWindows all = windows(config);
    const bool holds_out = is_measured_ || config.data.validation_fraction > 0;
    return examples_of(config, std::move(holds_out ? all.validation : all.training));
  }
  DataFacts contents(const HybridTrainerConfig& config) const override {
    const SeriesScale scales = scale(config);
    DataFacts facts;
    for (std::int64_t column = 0; column < table_.width(); ++column) {
      double low = table_.row(0)[column], high = low;
      for (std::int64_t row = 1; row < table_.rows(); ++row) {
        low = std::min(low, table_.row(row)[column]);
        high = std::max(high, table_.row(row)[column]);
      }
      const auto& [mean, deviation] = scales.columns[static_cast<std::size_t>(column)];
      facts.emplace_back(name_of(column),
                         concat(brief(low), " to ", brief(high), "; scaled by mean ", brief(mean),
                                " and deviation ", brief(deviation)));
    }
    const SeriesWindows all = windows(config);
    facts.emplace_back("windows",
                       concat(all.training.size(), " for training and ", all.validation.size(),
                              " for validation, each of ", config.data.sequence_length, " rows"));
    return facts;
  }
  DataFacts example(std::int64_t number, const HybridTrainerConfig& config) const override {
    if (const std::int64_t last = std::ranges::max(table_.numbers); number > last)
      throw DataError(
          concat(path_.string(), ": row ", number, " does not exist; the last one is ", last));
    const auto found = std::ranges::find(table_.numbers, number);
    if (found == table_.numbers.end())
      throw DataError(concat(path_.string(), ": row ", number,
                             " was skipped: a cell is empty or not a finite number"));
    const std::int64_t row = found - table_.numbers.begin();
    const SeriesScale scales = scale(config);
    const auto later = std::ranges::upper_bound(table_.starts, row);
    const std::int64_t begin = *(later - 1);
    DataFacts facts{
        {"series", concat("row ", row - begin + 1, " of series ", later - table_.starts.begin())}};
    for (std::int64_t column = 0; column < table_.width(); ++column) {
      const double value = table_.row(row)[column];
      facts.emplace_back(name_of(column),
                         concat(brief(value), ", read as ",
                                brief(scales.scaled(static_cast<std::size_t>(column), value))));
    }
    const std::int64_t length = config.data.sequence_length;
    const auto gap = std::ranges::upper_bound(table_.gaps, row);
    const std::int64_t first = gap == table_.gaps.begin() ? begin : std::max(begin, *(gap - 1));
    facts.emplace_back(
        "window", row - first + 1 < length
                      ? concat("no window ends here: a window has ", length, " rows")
                      : concat("rows ", table_.numbers[static_cast<std::size_t>(row - length + 1)],
                               " to ", number, ", to predict ", table_.columns.back()));
    return facts;
  }
  /// Returns a maker whose predictions contain the row number at a window's end and the predicted
  /// target.
  PredictionMaker prediction_maker(const HybridTrainerConfig& config) const override {
    return [this, first = windows(config).validation, scale = scale(config).columns.back(),
            length = config.data.sequence_length](std::int64_t number,
                                                  const std::vector<NamedTensor>& outputs) {
      const auto scaled = static_cast<double>(outputs.front().tensor.data<float>()[0]);
      const auto value = static_cast<float>(scale.mean + scale.deviation * scaled);
      const auto last = first[static_cast<std::size_t>(number)] + length - 1;
      return Prediction{{value},
                        {{"row", table_.numbers[static_cast<std::size_t>(last)]},
                         {table_.columns.back(), decimal(value)}}};
    };
  }
  std::vector<std::string> notes() const override { return table_.notes; }
  /// Converts errors to units of the target; the loss is in units of its standard deviation.
  std::vector<Measure> in_original_units(std::vector<Measure> measures,
                                         const HybridTrainerConfig& config) const override {
    const double unit = scale(config).columns.back().deviation;
    for (Measure& measure : measures) {
      if (measure.name.ends_with(".absolute_error")) measure.sum *= unit;
      if (measure.name.ends_with(".squared_error")) measure.sum *= unit * unit;
    }
    return measures;
  }
  std::string checksum() const override {
    const auto sum = [](const auto& numbers) {
      return checksum_of({reinterpret_cast<const char*>(numbers.data()),
                          numbers.size() * sizeof(numbers.front())});
    };
    return sum(table_.values) + (table_.gaps.empty() ? "" : sum(table_.gaps));
  }

 private:
  std::string name_of(std::int64_t column) const {
    const std::string& name = table_.columns[static_cast<std::size_t>(column)];
    return concat(column + 1 == table_.width() ? "target " : "input ", name);
  }
  SeriesWindows windows(const HybridTrainerConfig& config) const {
    const double held_out = is_measured_ ? 1 : config.data.validation_fraction;
    return windows_of(table_, config.data.sequence_length, held_out);
  }
  SeriesScale scale(const HybridTrainerConfig& config) const {
    return scale_from(config.model.series.scale, table_.width(), "model.series.scale");
  }
  std::shared_ptr<const Dataset> examples_of(const HybridTrainerConfig& config,
                                             std::vector<std::int64_t> windows) const {
    return std::make_shared<SeriesExamples>(table_, scale(config), config.data.sequence_length,
                                            std::move(windows));
  }
  std::filesystem::path path_;
  SeriesTable table_;
  bool is_measured_;  // uses all rows for evaluation
};

}  // namespace

std::unique_ptr<NetworkData> series_data(const NetworkDataSource& source) {
  if (source.data.empty())
    throw UsageError(
        "--data is missing: give a table (CSV, JSON lines or parquet), and its measurements and "
        "target with --columns");
  return std::make_unique<SeriesData>(source);
}

}  // namespace hybrid_trainer
