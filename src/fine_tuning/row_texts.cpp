#include "row_texts.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

std::vector<RowText> lines_of(std::string_view content) {
  std::vector<RowText> rows;
  std::int64_t line = 0;
  for (std::string_view rest = content; !rest.empty();) {
    const std::string_view text = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(text.size() + 1, rest.size()));
    ++line;
    if (!trimmed(text).empty()) rows.push_back({line, text});
  }
  return rows;
}

/// Where the array's element that begins at `begin` ends: at the comma or the bracket behind it. npos:
/// nowhere.
std::size_t end_of_element(std::string_view text, std::size_t begin) {
  std::size_t depth = 0;
  bool is_in_string = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string) {
      if (c == '\\') ++i;
      is_in_string = c != '"';
    } else if (c == '"') {
      is_in_string = true;
    } else if (depth == 0 && (c == ',' || c == ']')) {
      return i;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return text.npos;
}

std::vector<RowText> elements_of(std::string_view array, const std::string& path) {
  std::vector<RowText> rows;
  for (std::size_t begin = 1;;) {
    const std::size_t end = end_of_element(array, begin);
    if (end == array.npos)
      throw DataError(concat(path, ": is a JSON array that does not end; copy the file anew"));
    const std::string_view element = trimmed(array.substr(begin, end - begin));
    const bool is_last = array[end] == ']';
    if (element.empty() && !(is_last && rows.empty()))
      throw DataError(concat(path,
                             ": is a JSON array with nothing between two commas, or behind the ",
                             "last one, after element ", rows.size(), "; write it anew"));
    if (!element.empty()) rows.push_back({std::ssize(rows) + 1, element});
    if (!is_last) {
      begin = end + 1;
      continue;
    }
    if (end + 1 != array.size())
      throw DataError(concat(path, ": something follows the JSON array that it begins with; want ",
                             "one array, or one JSON object a line"));
    return rows;
  }
}

void refuse_table(const std::vector<RowText>& lines, const std::filesystem::path& path) {
  const auto is_object = [](const RowText& row) { return trimmed(row.text).starts_with('{'); };
  if (lines.empty() || std::ranges::any_of(lines, is_object)) return;
  const bool has_name = path.extension() == ".csv" || path.extension() == ".tsv";
  const char separator = lines.front().text.find('\t') != std::string_view::npos ? '\t' : ',';
  if (!has_name && lines.front().text.find(separator) == std::string_view::npos) return;
  throw DataError(
      concat(path.native(),
             ": is a table, as CSV or TSV files are, and no JSON; name its columns text, or ",
             "prompt and completion, and write it as JSON lines: python3 -c \"import pandas; ",
             "pandas.read_csv('", path.native(), "', sep='", separator == '\t' ? "\\t" : ",",
             "').to_json('", path.native(), ".jsonl', orient='records', lines=True)\""));
}

}  // namespace

bool is_array(std::string_view content) { return trimmed(content).starts_with('['); }

std::vector<RowText> row_texts(std::string_view content, const std::filesystem::path& path) {
  if (is_array(content)) return elements_of(trimmed(content), path.native());
  std::vector<RowText> lines = lines_of(content);
  refuse_table(lines, path);
  return lines;
}

}  // namespace hybrid_trainer
