#include "hybrid_trainer/series/series_table.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/files/utf8.h"
#include "hybrid_trainer/tables/row_files.h"
#include "hybrid_trainer/tables/table_reader.h"
#include "src/series/plain_number.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

std::optional<double> number_of(const json::value& cell) {
  if (const json::string* text = cell.if_string()) return plain_number(std::string(*text));
  if (const double* number = cell.if_double()) return *number;
  if (const std::int64_t* number = cell.if_int64()) return static_cast<double>(*number);
  if (const std::uint64_t* number = cell.if_uint64()) return static_cast<double>(*number);
  if (const bool* truth = cell.if_bool()) return *truth ? 1 : 0;
  return std::nullopt;
}

/// A cell for a message.
std::string shown(const json::value& cell) {
  constexpr std::size_t kMost = 60;
  const std::string text = json::serialize(cell);
  return text.size() > kMost ? text.substr(0, valid_utf8_bytes(text.substr(0, kMost), 0)) + "…"
                             : text;
}

/// What to do about a cell that is no number.
std::string advice(const json::value& cell) {
  const json::string* const text = cell.if_string();
  if (text == nullptr) return "leave the column out, or write it as numbers";
  const std::string_view content(*text);
  static constexpr std::string_view kGaps[] = {"",    "na",   "n/a",  "nan", "-nan", "null", "none",
                                               "inf", "-inf", "+inf", "-",   "?",    "."};
  std::string lower(content);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (std::ranges::find(kGaps, std::string_view(lower)) != std::end(kGaps))
    return "fill in such cells";
  if (content.find(',') != content.npos &&
      content.find_first_not_of("+-0123456789.,") == content.npos)
    return "write 1234.5, with a point before the fraction and nothing between thousands";
  return "leave the column out, or write it as numbers";
}

/// A moment as seconds, or a plain number: "2024-01-31", "2024-01-31T10:00:00.5Z", "10:00:00".
std::optional<double> moment_of(const json::value& cell) {
  const json::string* const text = cell.if_string();
  if (text == nullptr || plain_number(std::string(*text))) return number_of(cell);
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, length = 0;
  double second = 0;
  const char* at = text->c_str();
  if (std::sscanf(at, "%4d-%2d-%2d%n", &year, &month, &day, &length) == 3) {
    at += length;
    if (*at == 'T' || *at == ' ') ++at;
  }
  if (length = 0; std::sscanf(at, "%2d:%2d%n", &hour, &minute, &length) == 2) {
    at += length;
    if (length = 0; std::sscanf(at, ":%lf%n", &second, &length) == 1) at += length;
  }
  const std::string_view rest(at);
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (at == text->c_str() || !(rest.empty() || rest == "Z" || rest == "+00:00") || !date.ok())
    return {};
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return 86400.0 * static_cast<double>(days) + 3600 * hour + 60 * minute + second;
}

bool is_name_of_time(std::string name) {
  static constexpr std::string_view kNames[] = {"time", "timestamp", "datetime", "date_time",
                                                "date"};
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kNames, std::string_view(name)) != std::end(kNames);
}

/// The steps of a time column from row to row within a series.
class TimeSteps {
 public:
  TimeSteps(const std::vector<double>& times, const SeriesTable& table) {
    for (std::size_t row = 1; row < times.size(); ++row) {
      const auto index = static_cast<std::int64_t>(row);
      if (std::ranges::binary_search(table.starts, index) ||
          std::ranges::binary_search(table.gaps, index))
        continue;
      steps_.emplace_back(index, times[row] - times[row - 1]);
    }
    if (steps_.empty()) return;
    const auto middle = steps_.begin() + std::ssize(steps_) / 2;
    std::vector<std::pair<std::int64_t, double>> sorted(steps_);
    std::ranges::nth_element(sorted, sorted.begin() + (middle - steps_.begin()), {},
                             &std::pair<std::int64_t, double>::second);
    usual_ = sorted[static_cast<std::size_t>(middle - steps_.begin())].second;
  }
  double usual() const { return usual_; }  // the median
  /// Whether nine of ten steps are the usual one.
  bool are_regular() const {
    const auto same = std::ranges::count_if(steps_, [&](const auto& step) {
      return std::abs(step.second - usual_) <= 1e-3 * std::abs(usual_);
    });
    return usual_ > 0 && 10 * same >= 9 * std::ssize(steps_);
  }
  /// Rows behind a step that is longer than usual, or backward.
  std::vector<std::int64_t> gaps() const {
    std::vector<std::int64_t> rows;
    for (const auto& [row, step] : steps_)
      if (usual_ > 0 && (step > 1.5 * usual_ || step < 0)) rows.push_back(row);
    return rows;
  }

 private:
  std::vector<std::pair<std::int64_t, double>> steps_;
  double usual_ = 0;
};

/// Takes the rows of files one behind the other.
class SeriesReader {
 public:
  explicit SeriesReader(const SeriesColumns& columns) : columns_(columns), time_(columns.time) {
    table_.columns = columns.inputs;
    table_.columns.push_back(columns.target);
  }

  void read(const std::filesystem::path& path) {
    label_.reset();
    begins_ = true;
    is_gap_ = false;
    TableReading reading;
    reading.wanted = table_.columns;
    reading.renames = false;
    for (const std::string& column : {columns_.series, columns_.time})
      if (!column.empty()) reading.wanted.push_back(column);
    std::optional<std::pair<std::int64_t, std::string>> refused;  // the first one
    const auto refuse = [&](std::int64_t number, const std::string& reason) {
      ++seen_, ++left_out_;
      is_gap_ = true;
      if (!refused) refused = {number, reason};
    };
    const TableForm form =
        visit_rows(path, reading,
                   {[&](std::int64_t number, const json::object& row, const WideIntegers&) {
                      try {
                        add(row);
                        ++seen_;
                      } catch (const DataError& error) {
                        refuse(number, error.what());
                      }
                    },
                    refuse});
    if (refused && first_.empty())
      first_ = concat(path.string(), ": ", form.unit(), " ", refused->first, ": ", refused->second);
  }

  SeriesTable take() {
    if (2 * left_out_ >= seen_ && left_out_ > 0) throw DataError(first_);
    if (left_out_ > 0)
      table_.notes.push_back(concat(
          left_out_, " of ", seen_, left_out_ == 1 ? " rows is" : " rows are",
          " left out, and no window goes across ", left_out_ == 1 ? "it; " : "them; ", first_));
    if (!time_.empty()) add_gaps_in_time();
    return std::move(table_);
  }

 private:
  void add(const json::object& row) {
    if (!has_looked_ && columns_.time.empty()) look_for_time(row);
    has_looked_ = true;
    std::vector<double> numbers;
    for (const std::string& column : table_.columns) numbers.push_back(number_in(row, column));
    double time = 0;
    if (!time_.empty()) {
      const bool is_asked = !columns_.time.empty();
      const json::value* found = is_asked ? &cell(row, time_) : row.if_contains(time_);
      const std::optional<double> moment = found == nullptr ? std::nullopt : moment_of(*found);
      if (!moment && is_asked)
        throw DataError(concat("column ", time_, ": got ", shown(*found),
                               ", want a time: a number, or 2024-01-31 10:00:00"));
      if (!moment) time_.clear();
      time = moment.value_or(0);
    }
    if (!columns_.series.empty()) {
      const json::value label = cell(row, columns_.series);
      if (!label_ || *label_ != label) begins_ = true;
      label_ = label;
    }
    if (begins_) table_.starts.push_back(table_.rows());
    if (is_gap_ && !begins_) table_.gaps.push_back(table_.rows());
    begins_ = is_gap_ = false;
    table_.values.insert(table_.values.end(), numbers.begin(), numbers.end());
    table_.numbers.push_back(seen_ + 1);
    times_.push_back(time);
  }

  /// A column of such a name, which may be an input.
  void look_for_time(const json::object& row) {
    for (const auto& [name, value] : row) {
      const bool is_used =
          columns_.target == std::string_view(name) || columns_.series == std::string_view(name);
      if (time_.empty() && !is_used && is_name_of_time(std::string(name))) time_ = name;
    }
  }

  void add_gaps_in_time() {
    const TimeSteps steps(times_, table_);
    const std::vector<std::int64_t> found = steps.gaps();
    if (found.empty() || (columns_.time.empty() && !steps.are_regular())) return;
    table_.notes.push_back(concat("column ", time_, " steps by ", brief(steps.usual()),
                                  " and further, or back, before ", found.size(),
                                  found.size() == 1 ? " row" : " rows", ", the first one row ",
                                  table_.numbers[static_cast<std::size_t>(found.front())],
                                  "; no window goes across such a gap"));
    table_.gaps.insert(table_.gaps.end(), found.begin(), found.end());
    std::ranges::sort(table_.gaps);
  }

  static double number_in(const json::object& row, const std::string& column) {
    const json::value& found = cell(row, column);
    const std::optional<double> number = number_of(found);
    if (!number || !std::isfinite(*number))
      throw DataError(concat("column ", column, ": got ", shown(found), ", want a finite number; ",
                             advice(found)));
    return *number;
  }

  static const json::value& cell(const json::object& row, const std::string& column) {
    const json::value* found = row.if_contains(column);
    if (found != nullptr && !found->is_null()) return *found;
    std::string there;
    for (const auto& [name, value] : row)
      there += concat(there.empty() ? "" : ", ", std::string_view(name));
    throw DataError(found != nullptr
                        ? concat("column ", column, " is empty")
                        : concat("there is no column ", column, "; there are ", there));
  }

  SeriesColumns columns_;
  std::string time_;  // column, or empty
  SeriesTable table_;
  std::vector<double> times_;
  std::optional<json::value> label_;  // of the row before
  bool begins_ = true, is_gap_ = false, has_looked_ = false;
  std::int64_t seen_ = 0, left_out_ = 0;
  std::string first_;  // row that is left out, and why
};

}  // namespace

SeriesTable read_series(const std::filesystem::path& path, const SeriesColumns& columns) {
  SeriesReader reader(columns);
  for (const std::filesystem::path& file : row_files(path)) reader.read(file);
  const std::string others = told_of_other_files(path, {RowSplit::kTrain});
  if (!others.empty()) warn(path.string(), others);
  SeriesTable table = reader.take();
  if (table.values.empty()) throw DataError(concat(path.string(), ": has no row"));
  return table;
}

}  // namespace hybrid_trainer
