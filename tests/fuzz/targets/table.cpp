#include <boost/json.hpp>

#include "src/data/tables/table_reader.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  static constexpr const char* kNames[] = {"rows.csv", "rows.tsv", "rows.jsonl", "rows.json"};
  const auto path = input_file(kNames[choice_in(input, std::size(kNames))], input);
  const TableVisitor visitor{.row = [](auto, const auto&, const auto&) {},
                             .refused = [](auto, const auto&) {}};
  unless_rejected([&] { visit_rows(path, {.wanted = {"prompt", "completion", "text"}}, visitor); });
  unless_rejected([&] {
    visit_rows(path, {.columns = ColumnNames("text=a,prompt=b"), .wanted = {"text", "prompt"}},
               visitor);
  });
  visit_rows(path, {}, visitor);
}
