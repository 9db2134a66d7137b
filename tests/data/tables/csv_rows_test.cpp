#include "src/data/tables/row_formats.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

/// The rows with each cell in brackets; an unquoted empty cell is a dash.
std::string read(std::string_view content, const std::vector<std::string>& wanted = {}) {
  CsvRows rows(content, "t.csv", wanted);
  std::string text;
  for (const std::string& name : rows.names()) text += "[" + name + "]";
  std::vector<CsvRows::Cell> cells;
  while (rows.next(cells)) {
    text += " ";
    for (const auto& [cell, is_quoted] : cells)
      text += cell.empty() && !is_quoted ? "-" : "[" + cell + "]";
  }
  return text;
}

TEST(CsvRows, ParsesStandardCsv) {
  EXPECT_EQ(read("a,b\n1,2\n3,4"), "[a][b] [1][2] [3][4]");
  EXPECT_EQ(read("a,b\r\n1,2\r\n"), "[a][b] [1][2]");
  EXPECT_EQ(read("a,b\r1,\"2\r\"\r"), "[a][b] [1][2\r]");
  EXPECT_EQ(read("a,b\n\"1,\n\"\"x\"\"\",\n,\"\"\n"), "[a][b] [1,\n\"x\"]- -[]");
  EXPECT_EQ(read("a,b\n5\" disk, \"q\"\n"), "[a][b] [5\" disk][ \"q\"]");
  EXPECT_EQ(read("a,b\n\n1\n1,2,3\n\n"), "[a][b] [1] [1][2][3]");
  EXPECT_EQ(read(""), "");
}

TEST(CsvRows, DetectsSeparator) {
  EXPECT_EQ(read("a\tb\n1,5\t2\n"), "[a][b] [1,5][2]");
  EXPECT_EQ(read("a;\"b,c\"\n1,5;2\n"), "[a][b,c] [1,5][2]");
  EXPECT_EQ(read("a;b, in mm\n1;2\n3,5;4\n"), "[a][b, in mm] [1][2] [3,5][4]");
  EXPECT_EQ(read("a;b, c\n1;2, 3\n", {"a"}), "[a][b, c] [1][2, 3]");
  EXPECT_EQ(read("a;b, c\n1;2, 3\n"), "[a;b][ c] [1;2][ 3]")
      << "both separators fit; a comma is preferred";
  EXPECT_EQ(read("a;b"), "[a][b]");
  EXPECT_EQ(read("a|b\n1,5|2\n"), "[a][b] [1,5][2]");
}

TEST(CsvRows, ReadsExcelSeparatorLine) {
  for (const char* line : {"sep=;\n", "SEP=;\r\n", "\"sep=;\"\n"})
    EXPECT_EQ(read(concat(line, "a;b,c\n1;2\n")), "[a][b,c] [1][2]") << line;
  EXPECT_EQ(read("sep=|\na|b\n1,5|2\n"), "[a][b] [1,5][2]");
  EXPECT_EQ(read("sep=,,\n1,2,3\n"), "[sep=][][] [1][2][3]") << "not a separator line";
}

TEST(CsvRows, ReportsMalformedRows) {
  expect_words(message_of<DataError>([] { read("a,b\n1,2\n3,\"never ends\n5,6\n"); }),
               {"t.csv", "row 2", "never ends"});
  expect_words(message_of<DataError>([] { read("\"a,b\n1,2\n"); }), {"first line"});
  expect_words(message_of<DataError>([] { read("a,a\n1,2\n"); }), {"two columns", "a"});
  expect_words(message_of<DataError>([] { read("a," + std::string(4097, 'b') + "\n1,2\n"); }),
               {"column 2", "4097 bytes", "at most 4096"});
}

/// Takes minutes if each name is compared with all previous ones.
TEST(CsvRows, ReadsManyColumns) {
  constexpr int kColumns = 300'000;
  std::string line;
  for (int i = 0; i < kColumns; ++i) line += std::to_string(i) + ',';
  EXPECT_EQ(CsvRows(line + "end\n", "t.csv").names().size(), kColumns + 1u);
  EXPECT_THROW(CsvRows(line + "7\n", "t.csv"), DataError);
}

}  // namespace
}  // namespace hybrid_trainer
