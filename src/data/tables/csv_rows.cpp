#include <algorithm>
#include <unordered_set>

#include "hybrid_trainer/core/error.h"
#include "src/data/tables/row_formats.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kLongestName = 4096;

/// Returns the number of bytes of the line break at the start of a text, or 0 if there is none.
std::size_t break_bytes(std::string_view text) {
  if (text.starts_with("\r\n")) return 2;
  return text.starts_with('\n') || text.starts_with('\r') ? 1 : 0;
}

/// Takes a first line that names the separator, as Excel writes it; nullopt without such a line.
std::optional<char> take_separator_line(std::string_view& content) {
  const std::string_view line = content.substr(0, content.find_first_of("\r\n"));
  const bool is_quoted = line.starts_with('"');
  const std::string_view said =
      is_quoted && line.size() > 2 && line.ends_with('"') ? line.substr(1, line.size() - 2) : line;
  if (said.size() != 5 || !(said.starts_with("sep=") || said.starts_with("SEP="))) return {};
  content.remove_prefix(line.size());
  return said.back();
}

}  // namespace

char CsvRows::separator_of(std::string_view content, const std::vector<std::string>& wanted) {
  constexpr std::size_t kSample = std::size_t{64} << 10, kRows = 20;
  const std::string_view sample = content.substr(0, kSample);
  char best = ',';
  std::pair<std::int64_t, std::int64_t> most{-1, -1};  // wanted names, fitting rows
  for (const char separator : {',', '\t', ';', '|'}) {
    CsvRows rows(sample, separator);
    std::vector<Cell> names, cells;
    std::pair<std::int64_t, std::int64_t> fits{0, 0};
    try {
      if (!rows.next(names)) break;
      for (const Cell& name : names) fits.first += std::ranges::count(wanted, name.text);
      const auto is_cut_within_quotes = [](const Cell& name) {
        return !name.is_quoted && name.text.find('"') != std::string::npos;
      };
      const bool may_be = names.size() > 1 && std::ranges::none_of(names, is_cut_within_quotes);
      fits.second = may_be ? 1 : 0;
      for (std::size_t i = 0; may_be && i < kRows && rows.next(cells); ++i) {
        const bool is_cut = rows.rest_.empty() && sample.size() < content.size();
        if (!is_cut && cells.size() == names.size()) ++fits.second;
      }
    } catch (const DataError&) {  // a quote that does not end within the sample
    }
    if (fits > most) most = fits, best = separator;
  }
  return best;
}

CsvRows::CsvRows(std::string_view content, std::string path, const std::vector<std::string>& wanted)
    : rest_(content), path_(std::move(path)) {
  const std::optional<char> named = take_separator_line(rest_);
  separator_ = named ? *named : separator_of(rest_, wanted);
  std::vector<Cell> cells;
  std::unordered_set<std::string> seen;
  if (!next(cells)) return;
  for (Cell& cell : cells) {
    if (cell.text.size() > kLongestName)  // repeated in each row
      throw DataError(concat(path_, ": column ", names_.size() + 1, " has a name of ",
                             cell.text.size(), " bytes; want at most ", kLongestName,
                             ", and column names in the first line"));
    const bool is_duplicate = !cell.text.empty() && !seen.insert(cell.text).second;
    if (is_duplicate) throw DataError(concat(path_, ": two columns have the name ", cell.text));
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

void CsvRows::read_cell(Cell& cell) {
  cell.is_quoted = rest_.starts_with('"');
  if (cell.is_quoted) rest_.remove_prefix(1);
  while (cell.is_quoted) {
    const std::size_t quote = rest_.find('"');
    if (quote == rest_.npos)
      throw DataError(concat(path_, ": a quote in ", names_.empty() ? "its first line" : "row ",
                             names_.empty() ? "" : std::to_string(row_),
                             " has no end; it begins: \"", cell.text.substr(0, 40),
                             rest_.substr(0, 40)));
    cell.text += rest_.substr(0, quote);
    rest_.remove_prefix(quote + 1);
    if (!rest_.starts_with('"')) break;
    cell.text += '"';
    rest_.remove_prefix(1);
  }
  for (std::size_t at = 0;; ++at) {  // without quotes, or after them
    const bool ends =
        at == rest_.size() || rest_[at] == separator_ || break_bytes(rest_.substr(at)) > 0;
    if (!ends) continue;
    cell.text += rest_.substr(0, at);
    rest_.remove_prefix(at);
    return;
  }
}

}  // namespace hybrid_trainer
