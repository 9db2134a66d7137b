#include "src/data/series/series.h"

#include "tests/fuzz/fuzz_target.h"

/// A line with the columns, then the table.
void hybrid_trainer::read_input(std::string_view input) {
  const std::size_t line = input.find('\n');
  const SeriesColumns columns{std::string(input.substr(0, line))};
  const std::string_view rows = line == input.npos ? std::string_view() : input.substr(line + 1);
  const SeriesTable table = read_series(input_file("series.csv", rows), columns);
  const SeriesScale scale =
      scale_of(table, std::vector<bool>(static_cast<std::size_t>(table.rows()), true));
  require(scale_from(text_of(scale), table.width(), "scale") == scale,
          "a scale differs from its text");
  windows_of(table, 2, 0.25);
}
