#include "src/data/tables/table_reader.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/core/messages.h"
#include "src/core/process.h"
#include "src/data/parquet/parquet_file.h"
#include "src/data/tables/row_files.h"
#include "src/data/tables/row_formats.h"
#include "src/files/text.h"

namespace hybrid_trainer {

ColumnNames::ColumnNames(const std::string& text, const std::string& key) {
  const auto refuse = [&](const std::string& problem) {
    throw ConfigError({concat(key, ": got \"", text, "\", ", problem,
                              "; want NAME=COLUMN,… such as prompt=question,completion=answer")});
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string part = text.substr(begin, text.find(',', begin) - begin);
    begin += part.size() + 1;
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0)
      refuse(concat("in which \"", part, "\" has no NAME="));
    const std::string name = part.substr(0, equals);
    if (std::ranges::find(names_, name, &Name::name) != names_.end())
      refuse(concat("which names ", name, " twice"));
    names_.push_back({name, part.substr(equals + 1)});
  }
}

std::string ColumnNames::column_of(const std::string& name) const {
  const auto found = std::ranges::find(names_, name, &Name::name);
  return found == names_.end() ? name : found->column;
}

std::vector<std::string> ColumnNames::rename(json::object& row) const {
  std::vector<std::string> replaced;
  std::vector<std::optional<json::value>> values;
  for (const Name& one : names_) {
    const json::value* held = row.if_contains(one.column);
    values.push_back(held == nullptr ? std::nullopt : std::optional(*held));
  }
  for (const Name& one : names_) row.erase(one.column);
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const json::value* const held = row.if_contains(names_[i].name);
    if (held != nullptr && !held->is_null() && !names_[i].column.empty())
      replaced.push_back(names_[i].name);
    row.erase(names_[i].name);
    if (values[i] && !names_[i].column.empty()) row[names_[i].name] = *std::move(values[i]);
  }
  return replaced;
}

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kLargestText = std::size_t{16} << 30;
constexpr std::size_t kLongestLine = std::size_t{256} << 20;

bool is_parquet(const InputFile& file) {
  constexpr std::string_view kMark = "PAR1", kPointer = "version https://git-lfs";
  std::string begin(std::min(kPointer.size(), file.bytes()), '\0');
  file.read_at(begin.data(), begin.size(), 0);
  return begin.starts_with(kMark) || (ending_of(file.path()) == ".parquet" && begin != kPointer);
}

std::string content_of(const InputFile& file) {
  if (file.bytes() > kLargestText)
    throw DataError(concat(file.path().native(), ": has ", file.bytes(), " bytes; want at most ",
                           kLargestText));
  std::string bytes(file.bytes(), '\0');
  file.read_at(bytes.data(), bytes.size(), 0);
  return text_of_bytes(std::move(bytes), file.path());
}

bool is_table_by_name(const fs::path& path) {
  return ending_of(path) == ".csv" || ending_of(path) == ".tsv";
}

/// Returns whether a value is a list of messages, which must be one row.
bool is_list_of_messages(const json::value& value) {
  const json::array* const list = value.if_array();
  const json::object* const first =
      list == nullptr || list->empty() ? nullptr : list->front().if_object();
  return first != nullptr && (first->contains("role") || first->contains("from"));
}

class TableRows {
 public:
  TableRows(const fs::path& path, const TableReading& reading, const TableVisitor& visitor)
      : path_(path),
        called_(reading.called.empty() ? path.native() : reading.called),
        reading_(reading),
        visitor_(visitor) {}

  TableForm run() {
    TableForm form = read();
    form.unread.insert(form.unread.end(), replaced_.begin(), replaced_.end());
    return form;
  }

 private:
  TableForm read() {
    const InputFile file(path_);
    if (is_parquet(file)) return read_parquet();
    const std::string content = content_of(file);
    if (is_table_by_name(path_)) return read_csv(content);
    const JsonRows rows = json_rows(content, called_, wanted_columns());
    if (!rows.are_of_array && is_table_by_content(rows, content)) return read_csv(content);
    if (!rows.are_of_array && is_plain_text(rows))
      throw DataError(
          concat(called_,
                 ": is plain text, not JSON or a table; want rows of examples, such as {\"text\": "
                 "…} per line. To train on plain text, convert it with hybrid prepare"));
    return read_json(rows);
  }

  std::vector<std::string> wanted_columns() const {
    std::vector<std::string> columns;
    for (const std::string& name : reading_.wanted)
      if (const std::string column = reading_.columns.column_of(name); !column.empty())
        columns.push_back(column);
    return columns;
  }

  /// Returns whether the first line of a file that is not JSON contains wanted names.
  bool is_table_by_content(const JsonRows& rows, std::string_view content) const {
    if (rows.rows.empty() || rows.begins_with_object()) return false;
    const std::vector<std::string> wanted = wanted_columns();
    try {
      const std::vector<std::string> names = CsvRows(content, called_, wanted).names();
      return std::ranges::find_first_of(names, wanted) != names.end();
    } catch (const DataError&) {  // a duplicate name, as in a sentence
      return false;
    }
  }

  /// Returns whether no line is an object and the first line is not JSON of another kind.
  static bool is_plain_text(const JsonRows& rows) {
    if (rows.rows.empty() || rows.holds_objects()) return false;
    const std::string_view first = rows.rows.front().text;
    const char begin = first[first.find_first_not_of(" \t\r\n")];
    return std::string_view("[\"-0123456789").find(begin) == std::string_view::npos;
  }

  std::string not_utf8() const {
    return concat(
        "it is not UTF-8; convert a file written on Windows with: iconv -f WINDOWS-1252 -t ",
        "UTF-8 ", shell_path(called_), " > ", shell_path(called_ + ".utf8"));
  }

  TableForm read_json(const JsonRows& rows) {
    for (const auto& [line, text] : rows.rows) {
      count_progress();
      WideIntegers wide;
      json::value value;
      try {
        value = parse_noted_json(text, "the line", kLongestLine, wide);
        if (is_list_of_messages(value))
          throw DataError("it is a list of messages without a key; want {\"messages\": […]}");
        if (!value.is_object()) throw DataError("it is not a JSON object");
      } catch (const DataError& error) {
        const bool is_utf8 = valid_utf8_bytes(text, 0) == text.size();
        visitor_.refused(line, is_utf8 ? error.what() : not_utf8());
        continue;
      }
      record_columns(value.get_object());
      give(line, value.get_object(), wide);
    }
    if (!first_columns_.empty()) check_columns(first_columns_);
    return {rows.are_of_array ? RowContainer::kJsonArray : RowContainer::kJsonLines, rows.array_key,
            rows.others};
  }

  TableForm read_csv(std::string_view content) {
    const std::string_view head = content.substr(0, content.find('\n'));
    if (valid_utf8_bytes(head, 0) != head.size())
      throw DataError(
          concat(called_, ": cannot read the column names in its first line: ", not_utf8()));
    CsvRows rows(content, called_, wanted_columns());
    const std::vector<std::string>& names = rows.names();
    seen_.insert(names.begin(), names.end());
    check_columns(names);
    require_wanted(names);
    std::vector<CsvRows::Cell> cells;
    for (std::int64_t number = 1; rows.next(cells); ++number) {
      count_progress();
      if (cells.front().text.starts_with(kByteOrderMark))  // in concatenated files
        cells.front().text.erase(0, kByteOrderMark.size());
      const auto refuse = [&](const std::string& reason) { visitor_.refused(number, reason); };
      if (cells.size() != names.size()) {
        refuse(concat("it has ", cells.size(), cells.size() == 1 ? " cell" : " cells",
                      ", but the first line has ", names.size()));
        continue;
      }
      json::object row;
      bool is_text = true;
      for (std::size_t i = 0; i < cells.size(); ++i) {
        is_text = is_text && valid_utf8_bytes(cells[i].text, 0) == cells[i].text.size();
        const bool is_nothing = cells[i].text.empty() && !cells[i].is_quoted;
        row[names[i]] = is_nothing ? json::value() : json::value(cells[i].text);
      }
      if (!is_text) {
        refuse(not_utf8());
        continue;
      }
      give(number, row, {});
    }
    return {RowContainer::kCsv};
  }

  TableForm read_parquet() {
    ParquetFile file(path_, called_);
    const std::vector<std::string> names = file.columns();
    seen_.insert(names.begin(), names.end());
    check_columns(names);
    const std::vector<std::string> wanted = wanted_columns();
    const auto take = [&](std::int64_t number, json::object& row) {
      count_progress();
      give(number, row, {});
    };
    read_parquet_rows(file, wanted, take, reading_.renaming, reading_.allows_bytes);
    TableForm form{RowContainer::kParquet};
    form.class_names = class_names_in(file);
    const auto is_unread = [&](const std::string& name) {
      const auto is_column = [&](const ColumnNames::Name& one) { return one.column == name; };
      return !wanted.empty() && std::ranges::count(wanted, name) == 0 &&
             std::ranges::none_of(reading_.columns.names(), is_column);
    };
    std::ranges::copy_if(names, std::back_inserter(form.unread), is_unread);
    return form;
  }

  /// Throws DataError if there is no wanted column, so that rows are not rejected one by one.
  void require_wanted(const std::vector<std::string>& names) const {
    const std::vector<std::string> wanted = wanted_columns();
    if (wanted.empty() || names.empty()) return;
    if (std::ranges::find_first_of(names, wanted) != names.end()) return;
    if (!reading_.renames)
      throw MissingColumn(concat(called_, ": has the columns ", join(names).substr(0, 300),
                                 ", but none of ", join(wanted)));
    throw DataError(concat(called_, ": ", no_wanted_column(names, wanted, reading_.renaming)));
  }

  void give(std::int64_t number, json::object& row, const WideIntegers& wide) {
    for (std::string& name : reading_.columns.rename(row)) replaced_.insert(std::move(name));
    visitor_.row(number, row, wide);
  }

  void record_columns(const json::object& row) {
    const bool is_first = first_columns_.empty();
    if (!is_first && reading_.columns.names().empty()) return;
    for (const auto& [key, value] : row) {
      if (is_first) first_columns_.emplace_back(key);
      if (!reading_.columns.names().empty()) seen_.emplace(key);
    }
  }

  void check_columns(const std::vector<std::string>& columns) const {
    for (const auto& [name, column] : reading_.columns.names()) {
      if (column.empty() || seen_.contains(column)) continue;
      throw MissingColumn(concat(called_, ": has no column \"", column, "\" (for ", name,
                                 "); its columns are ", join(columns).substr(0, 300)));
    }
  }

  const fs::path& path_;
  std::string called_;
  const TableReading& reading_;
  const TableVisitor& visitor_;
  std::set<std::string> seen_;
  std::set<std::string> replaced_;  // columns whose names are assigned to others
  std::vector<std::string> first_columns_;
};

}  // namespace

const char* name_of(RowContainer container) {
  static constexpr const char* kNames[] = {"JSON lines", "JSON array", "CSV", "parquet"};
  return kNames[static_cast<std::size_t>(container)];
}

const char* TableForm::unit() const {
  const bool has_rows = container == RowContainer::kCsv || container == RowContainer::kParquet;
  return has_rows ? "row" : "line";
}

TableForm visit_rows(const fs::path& path, const TableReading& reading,
                     const TableVisitor& visitor) {
  for (const auto& [name, column] : reading.columns.names())
    if (!reading.wanted.empty() && std::ranges::count(reading.wanted, name) == 0)
      throw ConfigError({choice_problem("--columns", name, reading.wanted)});
  return TableRows(path, reading, visitor).run();
}

}  // namespace hybrid_trainer
