#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

/// Reads a table by RFC 4180: the first line has the names; cells in quotes may have separators,
/// line breaks and doubled quotes; lines end with LF, CRLF or, in old files, CR. A quote inside a cell
/// that does not begin with one is text. Empty lines are skipped. Cells are separated by commas, tabs,
/// semicolons or bars: by what gives the first line names that are wanted, then by what gives most of the
/// first rows as many cells as names; or by what a line "sep=;" before the names says.
class CsvRows {
 public:
  struct Cell {
    std::string text;
    bool is_quoted = false;  // an empty cell without quotes holds nothing
  };
  /// `path` is for messages. Throws DataError where a name stands twice.
  CsvRows(std::string_view content, std::string path, const std::vector<std::string>& wanted = {});

  const std::vector<std::string>& names() const { return names_; }
  /// Reads the next row; false at the end. Its number of cells may differ from that of the names.
  /// Throws DataError where a quote does not end.
  bool next(std::vector<Cell>& cells);

 private:
  CsvRows(std::string_view content, char separator) : rest_(content), separator_(separator) {}
  static char separator_of(std::string_view content, const std::vector<std::string>& wanted);
  void read_cell(Cell& cell);

  std::string_view rest_;
  std::string path_{};
  char separator_ = ',';
  std::int64_t row_ = 0;
  std::vector<std::string> names_;
};

}  // namespace hybrid_trainer
