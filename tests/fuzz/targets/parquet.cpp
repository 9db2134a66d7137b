#include <map>

#include <boost/json.hpp>

#include "src/data/tables/row_formats.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  const ParquetFile file(input_file("table.parquet", input));
  unless_rejected([&] { class_names_in(file); });
  unless_rejected([&] { read_parquet_rows(file, {}, [](auto, auto&) {}); });
  for (const std::string& column : file.columns())
    unless_rejected([&] {
      read_parquet_rows(
          file, {column}, [](auto, auto&) {}, "", true);
    });
}
