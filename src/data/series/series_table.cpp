#include <boost/algorithm/string/case_conv.hpp>
#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/data/series/series.h"
#include "src/data/tables/row_files.h"
#include "src/data/tables/table_reader.h"
#include "src/files/json.h"
#include "src/files/text.h"

namespace hybrid_trainer {

std::optional<double> plain_number(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  if (begin == std::string::npos) return std::nullopt;
  const bool has_plus = text[begin] == '+' && begin < end && text[begin + 1] != '-';
  const char* const last = text.data() + end + 1;
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data() + begin + (has_plus ? 1 : 0), last, value);
  const bool is_out_of_range = error == std::errc::result_out_of_range && stop == last;
  if (is_out_of_range) value = std::strtod(text.c_str() + begin, nullptr);  // 0 or infinite
  if ((error != std::errc{} && !is_out_of_range) || stop != last || !std::isfinite(value))
    return std::nullopt;
  return value;
}

namespace {

std::string next_part(const std::string& text, std::size_t& begin) {
  const std::string part = text.substr(begin, text.find(',', begin) - begin);
  begin += part.size() + 1;
  return part;
}

std::optional<double> number_in_cell(const json::value& cell) {
  if (const json::string* text = cell.if_string()) return plain_number(std::string(*text));
  if (const double* number = cell.if_double()) return *number;
  if (const std::int64_t* number = cell.if_int64()) return static_cast<double>(*number);
  if (const std::uint64_t* number = cell.if_uint64()) return static_cast<double>(*number);
  if (const bool* truth = cell.if_bool()) return *truth ? 1 : 0;
  return std::nullopt;
}

std::string cell_text(const json::value& cell) {
  constexpr std::size_t kMax = 60;
  const std::string text = json_line(cell);
  return text.size() > kMax ? text.substr(0, valid_utf8_bytes(text.substr(0, kMax), 0)) + "…"
                            : text;
}

/// Suggests a fix for a cell that is not a number.
std::string advice(const json::value& cell) {
  const json::string* const text = cell.if_string();
  if (text == nullptr) return "leave the column out, or write it as numbers";
  const std::string_view content(*text);
  static constexpr std::string_view kGaps[] = {"",    "na",   "n/a",  "nan", "-nan", "null", "none",
                                               "inf", "-inf", "+inf", "-",   "?",    "."};
  const std::string lower = boost::algorithm::to_lower_copy(std::string(content));
  if (std::ranges::find(kGaps, std::string_view(lower)) != std::end(kGaps))
    return "fill in such cells";
  if (content.find(',') != content.npos &&
      content.find_first_not_of("+-0123456789.,") == content.npos)
    return "write 1234.5, with a point before the fraction and nothing between thousands";
  return "leave the column out, or write it as numbers";
}

/// Parses an offset from UTC in seconds: "Z", "+01:00", "-0530", "+01", or nothing.
std::optional<double> offset_in(std::string_view text) {
  if (text.empty() || text == "Z") return 0;
  std::string digits(text.substr(1));
  if (digits.size() == 5 && digits[2] == ':') digits.erase(2, 1);
  const bool is_one = (text[0] == '+' || text[0] == '-') &&
                      (digits.size() == 2 || digits.size() == 4) &&
                      digits.find_first_not_of("0123456789") == digits.npos;
  if (!is_one) return {};
  digits.resize(4, '0');
  const int number = std::stoi(digits), seconds = 3600 * (number / 100) + 60 * (number % 100);
  return text[0] == '-' ? -seconds : seconds;
}

std::optional<double> seconds_of_day(int year, int month, int day) {
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(narrow<unsigned>(month)),
                                         std::chrono::day(narrow<unsigned>(day))};
  if (!date.ok()) return {};
  return 86400.0 * static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count());
}

/// Returns the seconds of "2024-01-31", "2024-01-31T10:00:00.5+01:00", "10:00:00" or a number.
std::optional<double> moment_of(const json::value& cell) {
  const json::string* const text = cell.if_string();
  if (text == nullptr || plain_number(std::string(*text))) return number_in_cell(cell);
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, length = 0;
  double second = 0;
  std::optional<double> date = 0;
  const char* at = text->c_str();
  if (std::sscanf(at, "%4d-%2d-%2d%n", &year, &month, &day, &length) == 3) {
    date = seconds_of_day(year, month, day);
    at += length;
    if (*at == 'T' || *at == ' ') ++at;
  }
  if (length = 0; std::sscanf(at, "%2d:%2d%n", &hour, &minute, &length) == 2) {
    at += length;
    if (length = 0; std::sscanf(at, ":%lf%n", &second, &length) == 1) at += length;
  }
  const std::optional<double> offset = offset_in(at);
  if (at == text->c_str() || !offset || !date) return {};
  return *date + 3600 * hour + 60 * minute + second - *offset;
}

/// Converts numbers such as 20240131 to times, if all numbers are such dates.
void read_dates(std::vector<double>& times) {
  std::vector<double> moments;
  for (const double time : times) {
    if (time < 1e7 || time >= 1e8 || time != std::floor(time)) return;
    const int date = narrow<int>(time);
    const auto moment = seconds_of_day(date / 10000, date / 100 % 100, date % 100);
    if (!moment) return;
    moments.push_back(*moment);
  }
  times = std::move(moments);
}

bool is_name_of_time(const std::string& name) {
  static constexpr std::string_view kNames[] = {"time", "timestamp", "datetime", "date_time",
                                                "date"};
  const std::string lower = boost::algorithm::to_lower_copy(name);
  return std::ranges::find(kNames, std::string_view(lower)) != std::end(kNames);
}

/// Differences of a time column between consecutive rows, except across gaps and between series.
class TimeSteps {
 public:
  /// `order` has the index in `times` of each row of the table.
  TimeSteps(const std::vector<double>& times, const std::vector<std::size_t>& order,
            const SeriesTable& table) {
    for (std::size_t row = 1; row < order.size(); ++row) {
      const auto index = static_cast<std::int64_t>(row);
      if (std::ranges::binary_search(table.starts, index) ||
          std::ranges::binary_search(table.gaps, index))
        continue;
      steps_.emplace_back(index, times[order[row]] - times[order[row - 1]]);
    }
    if (steps_.empty()) return;
    std::vector<std::pair<std::int64_t, double>> sorted(steps_);
    const auto middle = sorted.begin() + std::ssize(sorted) / 2;
    std::ranges::nth_element(sorted, middle, {}, &std::pair<std::int64_t, double>::second);
    usual_ = middle->second;
  }
  bool empty() const { return steps_.empty(); }
  double usual() const { return usual_; }  // median
  /// Returns whether at least 90 % of the steps are about the median.
  bool are_regular() const {
    return usual_ != 0 && is_share(0.9, [&](double step) { return is_about(step, usual_); });
  }
  bool mostly_increasing() const {
    return is_share(0.75, [](double step) { return step > 0; });
  }
  bool mostly_decreasing() const {
    return is_share(0.75, [](double step) { return step < 0; });
  }
  bool often_unchanged() const {
    return is_share(0.25, [](double step) { return step == 0; });
  }
  /// Returns the period of a clock or calendar column; 0 if it is not periodic.
  double cycle() const {
    for (const double cycle : {7.0, 12.0, 24.0, 60.0, 1440.0, 3600.0, 86400.0}) {
      std::int64_t back = 0, whole = 0;
      for (const auto& [row, step] : steps_) {
        if (step >= 0) continue;
        ++back;
        whole += is_about(usual_ - step, cycle);
      }
      if (usual_ > 0 && back > 0 && 10 * whole >= 9 * back) return cycle;
    }
    return 0;
  }
  /// Returns the rows after a step that is backward, or much longer than usual.
  std::vector<std::int64_t> gaps() const {
    std::vector<std::int64_t> rows;
    for (const auto& [row, step] : steps_)
      if (usual_ > 0 && (step > 1.5 * usual_ || step < 0)) rows.push_back(row);
    return rows;
  }

 private:
  static bool is_about(double step, double other) {
    return std::abs(step - other) <= 1e-3 * std::abs(other);
  }
  template <class Is>
  bool is_share(double share, const Is& is) const {
    const auto count =
        std::ranges::count_if(steps_, [&](const auto& step) { return is(step.second); });
    return !steps_.empty() &&
           static_cast<double>(count) >= share * static_cast<double>(steps_.size());
  }

  std::vector<std::pair<std::int64_t, double>> steps_;
  double usual_ = 0;
};

class SeriesReader {
 public:
  explicit SeriesReader(const SeriesColumns& columns)
      : columns_(columns), time_(columns.time), detects_time_(columns.detects_time) {
    table_.columns = columns.inputs;
    table_.columns.push_back(columns.target);
  }

  void read(const std::filesystem::path& path) {
    labels_.clear();
    TableReading reading;
    reading.wanted = table_.columns;
    reading.renames = false;
    for (const std::string& column : {columns_.series, columns_.time})
      if (!column.empty()) reading.wanted.push_back(column);
    std::optional<std::pair<std::int64_t, std::string>> refused;  // the first one
    const auto refuse = [&](std::int64_t number, const std::string& reason) {
      ++seen_, ++left_out_;
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

  SeriesTable take(const std::filesystem::path& path) {
    if (2 * left_out_ >= seen_ && left_out_ > 0) throw DataError(first_);
    if (left_out_ > 0)
      table_.notes.push_back(
          concat(left_out_, " of ", seen_, left_out_ == 1 ? " rows is" : " rows are",
                 " left out, and no window spans ", left_out_ == 1 ? "it; " : "them; ", first_));
    for (std::size_t row = 0; row < rows_.size(); ++row) order_.push_back(row);
    group_series();
    find_borders();
    try {
      if (!time_.empty()) use_time();
    } catch (const DataError& error) {
      throw DataError(concat(path.string(), ": column ", time_, ": ", error.what()));
    }
    const std::vector<double> values = std::move(table_.values);
    table_.values.clear();
    for (const std::size_t row : order_) {
      const auto from = values.begin() + static_cast<std::ptrdiff_t>(row) * table_.width();
      table_.values.insert(table_.values.end(), from, from + table_.width());
      table_.numbers.push_back(rows_[row].number);
    }
    return std::move(table_);
  }

 private:
  struct Row {
    std::int64_t number = 0, series = 0;  // index of its series, in order of first rows
    std::int64_t left_out = 0;            // skipped rows before it
  };

  void add(const json::object& row) {
    if (detects_time_ && columns_.time.empty()) detect_time(row);
    detects_time_ = false;
    std::vector<double> numbers;
    for (const std::string& column : table_.columns) numbers.push_back(number_in(row, column));
    double time = 0;
    if (!time_.empty()) {
      const bool is_requested = !columns_.time.empty();
      const json::value* found = is_requested ? &cell(row, time_) : row.if_contains(time_);
      const std::optional<double> moment = found == nullptr ? std::nullopt : moment_of(*found);
      if (!moment && is_requested)
        throw DataError(concat("column ", time_, ": got ", cell_text(*found),
                               ", want a time: a number, or 2024-01-31 10:00:00"));
      if (!moment) time_.clear();
      time = moment.value_or(0);
    }
    const std::string label = columns_.series.empty() ? "" : json_line(cell(row, columns_.series));
    const auto [series, is_new] = labels_.try_emplace(label, series_);
    series_ += is_new;
    table_.values.insert(table_.values.end(), numbers.begin(), numbers.end());
    rows_.push_back({.number = seen_ + 1, .series = series->second, .left_out = left_out_});
    times_.push_back(time);
  }

  /// Finds a column with a usual name of a time. It may also be an input.
  void detect_time(const json::object& row) {
    for (const auto& [name, value] : row) {
      const bool is_used =
          columns_.target == std::string_view(name) || columns_.series == std::string_view(name);
      if (time_.empty() && !is_used && is_name_of_time(std::string(name))) time_ = name;
    }
  }

  /// Groups the rows of interleaved series, for example of several sensors.
  void group_series() {
    std::int64_t stages = 0;
    for (std::size_t row = 0; row < rows_.size(); ++row)
      stages += row == 0 || rows_[row].series != rows_[row - 1].series;
    if (stages == series_ || 2 * stages <= std::ssize(rows_)) return;
    std::ranges::stable_sort(order_, {}, [&](std::size_t row) { return rows_[row].series; });
    table_.notes.push_back(concat("the rows of the ", series_, " series of column ",
                                  columns_.series,
                                  " are interleaved; each series is read separately"));
  }

  void find_borders() {
    table_.starts.clear(), table_.gaps.clear();
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const Row &row = rows_[order_[i]], &before = rows_[order_[i == 0 ? 0 : i - 1]];
      const auto index = static_cast<std::int64_t>(i);
      if (i == 0 || row.series != before.series) {
        table_.starts.push_back(index);
      } else if (row.left_out != before.left_out) {
        table_.gaps.push_back(index);
      }
    }
  }

  void reverse_rows() {
    for (std::size_t i = 0; i < table_.starts.size(); ++i)
      std::reverse(order_.begin() + table_.starts[i], i + 1 < table_.starts.size()
                                                          ? order_.begin() + table_.starts[i + 1]
                                                          : order_.end());
    find_borders();
  }

  void use_time() {
    read_dates(times_);
    const bool is_requested = !columns_.time.empty();
    const auto leave = [&](const std::string& problem, const std::string& hint) {
      if (is_requested) throw DataError(problem + "; " + hint);
      table_.notes.push_back(
          concat("column ", time_, " is not used as the time: ", problem, "; ", hint));
    };
    TimeSteps steps(times_, order_, table_);
    if (steps.empty()) return;
    if (steps.often_unchanged())
      return leave("several rows have the same time",
                   columns_.series.empty() ? "if they belong to several series, such as sensors, "
                                             "give the column that identifies them: series=COLUMN"
                                           : "want one row for each time of a series");
    if (is_requested && !steps.mostly_increasing() && !steps.mostly_decreasing())
      return leave("its times neither increase nor decrease from row to row",
                   "sort the rows by time, or give the column that identifies several series: "
                   "series=COLUMN");
    if (!is_requested && !steps.are_regular())
      return leave("its steps differ", "time=COLUMN uses a column despite this");
    if (const double cycle = steps.cycle(); !is_requested && cycle > 0)
      return leave(concat("it restarts every ", brief(cycle)),
                   "give a column that increases: time=COLUMN");
    std::string told = concat("column ", time_);
    const bool is_decreasing = steps.mostly_decreasing();
    if (is_decreasing) {
      reverse_rows();
      steps = TimeSteps(times_, order_, table_);
      told += " has the newest row first, so rows are read in reverse order; it";
    }
    const std::vector<std::int64_t> found = steps.gaps();
    if (is_requested && !is_decreasing && found.empty()) return;
    told += concat(" steps by ", brief(steps.usual()));
    if (!found.empty())
      told += concat(", with a larger or backward step before ", found.size(),
                     found.size() == 1 ? " row" : " rows", ", first before row ",
                     rows_[order_[static_cast<std::size_t>(found.front())]].number,
                     "; no window spans such a gap");
    if (!is_requested)
      told += "; it is used as the time because of its name (time= without a column disables this)";
    table_.notes.push_back(std::move(told));
    if (found.empty()) return;
    table_.time = time_;
    table_.gaps.insert(table_.gaps.end(), found.begin(), found.end());
    std::ranges::sort(table_.gaps);
  }

  static double number_in(const json::object& row, const std::string& column) {
    const json::value& found = cell(row, column);
    const std::optional<double> number = number_in_cell(found);
    if (!number || !std::isfinite(*number))
      throw DataError(concat("column ", column, ": got ", cell_text(found),
                             ", want a finite number; ", advice(found)));
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
                        : concat("there is no column ", column, "; want one of ", there));
  }

  SeriesColumns columns_;
  std::string time_;  // column, or empty
  bool detects_time_;
  SeriesTable table_;  // its values are in file order until take()
  std::vector<Row> rows_;
  std::vector<double> times_;
  std::vector<std::size_t> order_;              // index in rows_ of each row of the table
  std::map<std::string, std::int64_t> labels_;  // index of each series in the file
  std::int64_t series_ = 0;
  std::int64_t seen_ = 0, left_out_ = 0;
  std::string first_;  // first skipped row, and the reason
};

}  // namespace

SeriesColumns::SeriesColumns(const std::string& text, const std::string& key) {
  const auto refuse = [&](const std::string& problem) {
    throw ConfigError({concat(
        key, ": got \"", text, "\", ", problem,
        "; want COLUMN,COLUMN,…,target=COLUMN, such as speed,height,target=fuel; add series=COLUMN "
        "if the rows belong to several series, and time=COLUMN if rows may be missing")});
  };
  const auto set = [&](std::string& member, const char* name, const std::string& column) {
    if (!member.empty()) refuse(concat("which names ", name, " twice"));
    if (column.empty()) refuse(concat("in which ", name, "= has no column"));
    member = column;
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string part = next_part(text, begin);
    if (part.empty()) refuse("in which a column name is empty");
    if (part.starts_with("target=")) {
      set(target, "target", part.substr(7));
    } else if (part.starts_with("series=")) {
      set(series, "series", part.substr(7));
    } else if (part == "time=") {
      detects_time = false;
    } else if (part.starts_with("time=")) {
      set(time, "time", part.substr(5));
    } else if (std::ranges::find(inputs, part) != inputs.end()) {
      refuse(concat("which names the column ", part, " twice"));
    } else {
      inputs.push_back(part);
    }
  }
  if (inputs.empty()) refuse("which names no column of measurements");
  if (target.empty()) refuse("which names no target");
  if (std::ranges::find(inputs, target) != inputs.end())
    refuse(
        concat("in which the target ", target,
               " is also an input, so the network would read the value that it must predict; leave "
               "it out of the inputs, or use a column with the value of the previous row"));
}

SeriesTable read_series(const std::filesystem::path& path, const SeriesColumns& columns) {
  SeriesReader reader(columns);
  for (const std::filesystem::path& file : row_files(path)) reader.read(file);
  const std::string others = unread_files_note(path, {RowSplit::kTrain});
  if (!others.empty()) warn(path.string(), others);
  SeriesTable table = reader.take(path);
  if (table.values.empty()) throw DataError(concat(path.string(), ": has no rows"));
  return table;
}

}  // namespace hybrid_trainer
