#include "hybrid_trainer/series/series_table.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <cmath>
#include <optional>

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
    return "fill in or leave out such rows";
  if (content.find(',') != content.npos &&
      content.find_first_not_of("+-0123456789.,") == content.npos)
    return "write 1234.5, with a point before the fraction and nothing between thousands";
  return "leave the column out, or write it as numbers";
}

/// Takes the rows of files one behind the other.
class SeriesReader {
 public:
  explicit SeriesReader(const SeriesColumns& columns) : columns_(columns) {
    table_.columns = columns.inputs;
    table_.columns.push_back(columns.target);
  }

  void read(const std::filesystem::path& path) {
    label_.reset();
    begins_ = true;
    TableReading reading;
    reading.wanted = table_.columns;
    reading.renames = false;
    if (!columns_.series.empty()) reading.wanted.push_back(columns_.series);
    std::optional<std::pair<std::int64_t, std::string>> refused;  // the first one
    const auto refuse = [&](std::int64_t number, const std::string& reason) {
      if (!refused) refused = {number, reason};
    };
    const TableForm form =
        visit_rows(path, reading,
                   {[&](std::int64_t number, const json::object& row, const WideIntegers&) {
                      try {
                        if (!refused) add(row);
                      } catch (const DataError& error) {
                        refuse(number, error.what());
                      }
                    },
                    refuse});
    if (refused)
      throw DataError(
          concat(path.string(), ": ", form.unit(), " ", refused->first, ": ", refused->second));
  }

  SeriesTable take() { return std::move(table_); }

 private:
  void add(const json::object& row) {
    if (!columns_.series.empty()) {
      const json::value label = cell(row, columns_.series);
      if (!label_ || *label_ != label) begins_ = true;
      label_ = label;
    }
    for (const std::string& column : table_.columns) add_number(cell(row, column), column);
    if (begins_) table_.starts.push_back(table_.rows() - 1);
    begins_ = false;
  }

  void add_number(const json::value& cell, const std::string& column) {
    const std::optional<double> number = number_of(cell);
    if (!number || !std::isfinite(*number))
      throw DataError(concat("column ", column, ": got ", shown(cell), ", want a finite number; ",
                             advice(cell)));
    table_.values.push_back(*number);
  }

  static const json::value& cell(const json::object& row, const std::string& column) {
    const json::value* found = row.if_contains(column);
    if (found != nullptr && !found->is_null()) return *found;
    std::string there;
    for (const auto& [name, value] : row)
      there += concat(there.empty() ? "" : ", ", std::string_view(name));
    throw DataError(found != nullptr
                        ? concat("column ", column, " is empty; fill in or leave out such rows")
                        : concat("there is no column ", column, "; there are ", there));
  }

  SeriesColumns columns_;
  SeriesTable table_;
  std::optional<json::value> label_;  // of the row before
  bool begins_ = true;
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
