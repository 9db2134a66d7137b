#include "src/tables/csv_rows.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// Bytes of the line break at the start of a text; 0: there is none.
std::size_t break_bytes(std::string_view text) {
  if (text.starts_with("\r\n")) return 2;
  return text.starts_with('\n') || text.starts_with('\r') ? 1 : 0;
}

}  // namespace

char csv_separator(std::string_view line) {
  bool has_tab = false, has_semicolon = false, is_quoted = false;
  for (const char c : line) {
    if (c == '"') is_quoted = !is_quoted;
    if (is_quoted) continue;
    if (c == '\n' || c == '\r') break;
    if (c == ',') return ',';
    has_tab = has_tab || c == '\t';
    has_semicolon = has_semicolon || c == ';';
  }
  return has_tab ? '\t' : has_semicolon ? ';' : ',';
}

CsvRows::CsvRows(std::string_view content, std::string path)
    : rest_(content), path_(std::move(path)), separator_(csv_separator(content)) {
  std::vector<Cell> cells;
  if (!next(cells)) return;
  for (Cell& cell : cells) {
    const bool is_twice = !cell.text.empty() && std::ranges::count(names_, cell.text) > 0;
    if (is_twice) throw DataError(concat(path_, ": two columns have the name ", cell.text));
    names_.push_back(std::move(cell.text));
  }
  row_ = 0;
}

bool CsvRows::next(std::vector<Cell>& cells) {
  while (const std::size_t bytes = break_bytes(rest_)) rest_.remove_prefix(bytes);
  if (rest_.empty()) return false;
  ++row_;
  cells.clear();
  while (true) {
    read_cell(cells.emplace_back());
    const std::size_t bytes = break_bytes(rest_);
    if (rest_.empty() || bytes > 0) {
      rest_.remove_prefix(bytes);
      return true;
    }
    rest_.remove_prefix(1);  // the separator
  }
}

/// Up to a separator or the line's end, which stay.
void CsvRows::read_cell(Cell& cell) {
  cell.is_quoted = rest_.starts_with('"');
  if (cell.is_quoted) rest_.remove_prefix(1);
  while (cell.is_quoted) {
    const std::size_t quote = rest_.find('"');
    if (quote == rest_.npos)
      throw DataError(concat(path_, ": a quote in ", names_.empty() ? "its first line" : "row ",
                             names_.empty() ? "" : std::to_string(row_), " does not end; begin: \"",
                             cell.text.substr(0, 40), rest_.substr(0, 40)));
    cell.text += rest_.substr(0, quote);
    rest_.remove_prefix(quote + 1);
    if (!rest_.starts_with('"')) break;
    cell.text += '"';
    rest_.remove_prefix(1);
  }
  for (std::size_t at = 0;; ++at) {  // without quotes, or behind them
    const bool ends =
        at == rest_.size() || rest_[at] == separator_ || break_bytes(rest_.substr(at)) > 0;
    if (!ends) continue;
    cell.text += rest_.substr(0, at);
    rest_.remove_prefix(at);
    return;
  }
}

}  // namespace hybrid_trainer
