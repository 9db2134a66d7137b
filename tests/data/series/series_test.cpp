#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/data/series/series.h"
#include "src/files/output_file.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class Series : public ::testing::Test {
 protected:
  std::filesystem::path written(const std::string& name, const std::string& text) const {
    write_file(scratch_ / name, text);
    return scratch_ / name;
  }
  std::string refusal(const std::filesystem::path& path, const std::string& columns) const {
    try {
      read_series(path, SeriesColumns(columns));
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  /// Two series of `rows` rows: x counts up, y is twice x, and z is always 3.
  std::filesystem::path counting(int rows) const {
    std::string text = "flight,x,note,z,y\n";
    for (int row = 0; row < 2 * rows; ++row)
      text += concat(row < rows ? "a" : "b", ",", row, ",\"n, m\",3,", 2 * row, "\n");
    return written("counting.csv", text);
  }
  static bool has(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  }
  const TemporaryFolder scratch_;
  const Stream stream_{MemoryPool::create("test")};
};

TEST_F(Series, CsvAndJsonLinesGiveSameColumns) {
  const SeriesTable csv = read_series(counting(10), SeriesColumns("x,z,target=y,series=flight"));
  std::string lines;
  for (int row = 0; row < 20; ++row)
    lines += concat(R"({"y":)", 2 * row, R"(,"x":)", row, R"(.0,"flight":)", row / 10, R"(,"z":3})",
                    "\n");
  const SeriesTable json =
      read_series(written("a.jsonl", lines), SeriesColumns("x,z,target=y,series=flight"));
  EXPECT_EQ(csv.values, json.values);
  EXPECT_EQ(csv.starts, (std::vector<std::int64_t>{0, 10}));
  EXPECT_EQ(json.starts, csv.starts);
  EXPECT_EQ(csv.rows(), 20);
  EXPECT_EQ(csv.row(7)[0], 7);
  EXPECT_EQ(csv.row(7)[2], 14);
}

TEST_F(Series, ReportsRowOfNonNumericCell) {
  EXPECT_TRUE(
      has(refusal(written("a.csv", "x,y\n1,2\n,4\n"), "x,target=y"), "a.csv: row 2: column x"));
  EXPECT_TRUE(has(refusal(written("b.csv", "x,y\n1,2\nfour,5\n"), "x,target=y"),
                  "b.csv: row 2: column x: got \"four\""));
  EXPECT_TRUE(
      has(refusal(written("c.csv", "x,y\n1,nan\n"), "x,target=y"), "column y: got \"nan\""));
  EXPECT_TRUE(has(refusal(written("d.csv", "x,y\n1,2\n"), "x,target=w"), "column w"));
  EXPECT_TRUE(has(refusal(written("e.jsonl", "{\"x\":1,\"y\":2}\n{\"x\":1}\n"), "x,target=y"),
                  "e.jsonl: line 2: there is no column y; want one of x"));
  EXPECT_TRUE(has(refusal(written("f.jsonl", "{\"x\":[1],\"y\":2}\n"), "x,target=y"), "got [1]"));
  EXPECT_TRUE(has(refusal(written("g.csv", "x,y\n"), "x,target=y"), "no row"));
  EXPECT_TRUE(has(refusal(scratch_ / "none.csv", "x,target=y"), "none.csv"));
}

TEST_F(Series, NonNumericCellErrorSuggestsFix) {
  const auto told = [&](const std::string& cell) {
    return refusal(written("a.csv", "x,y\n" + cell + ",2\n"), "x,target=y");
  };
  EXPECT_TRUE(has(told("NA"), "fill in such cells"));
  EXPECT_TRUE(has(told("\"0,5\""), "write 1234.5, with a point before the fraction"));
  EXPECT_TRUE(has(told("2012/01/01"), "leave the column out, or write it as numbers"));
  EXPECT_LT(told(std::string(10000, 'z')).size(), 400u);
  const std::string parquet = refusal(written("b.csv", "x,y\n1,2\n"), "v,target=w");
  EXPECT_TRUE(has(parquet, "has the columns x, y, but none of v, w")) << parquet;
  EXPECT_FALSE(has(parquet, "prompt")) << parquet;
}

TEST_F(Series, UnderflowBecomesZeroAndOverflowThrows) {
  const SeriesColumns columns("x,target=y");
  const SeriesTable table = read_series(written("a.csv", "x,y\n1e-400,2\n-1E-999,3\n"), columns);
  EXPECT_EQ(table.values, (std::vector<double>{0, 2, 0, 3}));
  EXPECT_TRUE(has(refusal(written("b.csv", "x,y\n1e400,2\n"), "x,target=y"), "finite number"));
  const SeriesTable large = read_series(written("c.csv", "x,y\n1e300,2\n-1e300,3\n"), columns);
  try {
    scale_of(large, {true, true});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_TRUE(has(error.what(), "column x: its numbers are so large")) << error.what();
  }
}

TEST_F(Series, RejectsInvalidColumnSettings) {
  const auto path = counting(4);
  EXPECT_TRUE(has(refusal(path, "x,z"), "names no target"));
  EXPECT_TRUE(has(refusal(path, "target=y"), "no column of measurements"));
  EXPECT_TRUE(has(refusal(path, "x,x,target=y"), "column x twice"));
  EXPECT_TRUE(has(refusal(path, "x,target=y,target=z"), "target twice"));
  EXPECT_TRUE(has(refusal(path, "x,,target=y"), "name is empty"));
  EXPECT_TRUE(has(refusal(path, "x,y,target=y"), "the target y is also an input"));
}

TEST_F(Series, WindowsStayWithinSeries) {
  const SeriesTable table = read_series(counting(10), SeriesColumns("x,target=y,series=flight"));
  const SeriesWindows windows = windows_of(table, 3, 0.3);
  EXPECT_EQ(windows.training, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 10, 11, 12, 13, 14}));
  EXPECT_EQ(windows.validation, (std::vector<std::int64_t>{7, 17}));
  EXPECT_EQ(windows_of(table, 2, 0.3).validation, (std::vector<std::int64_t>{7, 8, 17, 18}))
      << "every window that fits";
  EXPECT_THROW(windows_of(table, 8, 0.3), DataError);
  EXPECT_THROW(windows_of(table, 4, 0.3), DataError) << "validation has only 3 rows of each series";
}

/// Unusable rows and time steps that are too long, for each kind of gap.
TEST_F(Series, GapsSplitWindowsAndWarnOnce) {
  struct Case {
    const char *cell, *time;  // of row 4
    const char* columns;
    std::vector<std::int64_t> gaps;
    const char* told;
  };
  const Case cases[] = {
      {"4", "4", "x,target=y", {}, ""},
      {"", "4", "x,target=y", {3}, "1 of 12 rows is left out"},
      {"NaN", "4", "x,target=y", {3}, "row 4: column x: got \"NaN\""},
      {"4", "4.5", "x,target=y,time=hour", {}, ""},
      {"4", "soon", "x,target=y,time=hour", {3}, "column hour: got \"soon\", want"},
      {"4", "", "x,target=y,time=hour", {3}, "column hour is empty"},
  };
  for (const Case& one : cases) {
    std::string text = "hour,x,y\n";
    for (int row = 1; row <= 12; ++row)
      text += row == 4 ? concat(one.time, ",", one.cell, ",0\n") : concat(row, ",", row, ",0\n");
    const SeriesTable table = read_series(written("a.csv", text), SeriesColumns(one.columns));
    EXPECT_EQ(table.gaps, one.gaps) << one.columns << one.cell;
    EXPECT_EQ(table.notes.size(), *one.told == '\0' ? 0u : 1u) << one.columns << one.cell;
    for (const std::string& note : table.notes) EXPECT_TRUE(has(note, one.told)) << note;
    for (const std::int64_t first : windows_of(table, 3, 0).training)
      for (const std::int64_t gap : table.gaps) EXPECT_TRUE(first >= gap || first + 3 <= gap);
  }
}

TEST_F(Series, LongTimeStepsAreGaps) {
  const auto table_of = [&](const std::string& name, const std::string& columns, bool is_regular) {
    std::string text = name + ",x,y\n";
    for (int row = 0; row < 30; ++row) {
      const int minute = (is_regular ? row : row * row / 8) + (row < 20 ? 0 : 5);
      text += concat("2024-03-01 10:", minute / 10, minute % 10, ":00,", row, ",0\n");
    }
    return read_series(written("a.csv", text), SeriesColumns(columns));
  };
  const SeriesTable found = table_of("Timestamp", "x,target=y", true);
  EXPECT_EQ(found.gaps, std::vector<std::int64_t>{20});
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_TRUE(has(found.notes[0], "column Timestamp steps by 60")) << found.notes[0];
  EXPECT_EQ(table_of("when", "x,target=y", true).gaps.size(), 0u)
      << "not recognized as a time column";
  EXPECT_EQ(table_of("when", "x,target=y,time=when", true).gaps, found.gaps);
  EXPECT_EQ(table_of("time", "x,target=y", false).gaps.size(), 0u) << "its steps are not constant";
  std::string hours = "time,y\n";
  for (int row = 0; row < 30; ++row) hours += concat(row < 20 ? row : row + 5, ",0\n");
  const SeriesTable of_input = read_series(written("b.csv", hours), SeriesColumns("time,target=y"));
  EXPECT_EQ(of_input.gaps, found.gaps) << "the time column may also be an input";
}

/// 30 rows whose x is their index, with times of each format.
TEST_F(Series, ReadsTimesInEachFormat) {
  const auto minutes = [](int row) { return 10 + row + (row < 20 ? 0 : 5); };
  struct Case {
    const char *name, *columns;
    std::function<std::string(int)> time;
    std::vector<std::int64_t> gaps;
    const char* told;
    double first = 0;  // of x
  };
  const Case cases[] = {
      {"t",
       "x,target=y,time=t",
       [&](int row) { return concat("2024-03-01 00:", minutes(row), ":00+01:00"); },
       {20},
       "steps by 60"},
      {"t",
       "x,target=y,time=t",
       [&](int row) { return concat("10:", minutes(row), ":00"); },
       {20},
       "steps by 60"},
      {"time",
       "x,target=y",
       [&](int row) { return concat("2024-03-01 00:", 59 - row - (row < 20 ? 0 : 5), ":00"); },
       {10},
       "newest row first",
       29},
      {"date",
       "x,target=y",
       [](int row) { return concat(row < 20 ? 20240112 + row : 20240201 + row - 20); },
       {},
       "steps by 86400"},
      {"time", "x,target=y", [](int row) { return concat(row % 12); }, {}, "restarts every 12"},
      {"time", "x,target=y", [](int row) { return concat(row / 2); }, {}, "series=COLUMN"},
      {"time",
       "x,target=y",
       [](int row) { return concat(row < 20 ? row : row + 5); },
       {20},
       "because of its name"},
      {"time",
       "x,target=y,time=",
       [](int row) { return concat(row < 20 ? row : row + 5); },
       {},
       ""},
  };
  for (const Case& one : cases) {
    std::string text = concat(one.name, ",x,y\n");
    for (int row = 0; row < 30; ++row) text += concat(one.time(row), ",", row, ",0\n");
    const SeriesTable table = read_series(written("a.csv", text), SeriesColumns(one.columns));
    EXPECT_EQ(table.gaps, one.gaps) << one.told;
    EXPECT_EQ(table.values[0], one.first) << one.told;
    ASSERT_EQ(table.notes.size(), *one.told == '\0' ? 0u : 1u) << one.told;
    for (const std::string& note : table.notes) EXPECT_TRUE(has(note, one.told)) << note;
  }
  const auto refused = [&](const auto& time) {
    std::string text = "t,x,y\n";
    for (int row = 0; row < 30; ++row) text += concat(time(row), ",", row, ",0\n");
    return refusal(written("a.csv", text), "x,target=y,time=t");
  };
  EXPECT_TRUE(has(refused([](int row) { return row / 2; }), "series=COLUMN"));
  EXPECT_TRUE(has(refused([](int row) { return row * 17 % 30; }), "neither increase nor decrease"));
}

TEST_F(Series, GroupsInterleavedSeries) {
  std::string text = "time,sensor,x,y\n";
  for (int row = 0; row < 12; ++row)
    text +=
        concat(row / 2, ",", row % 2 == 0 ? "A" : "B", ",", row == 6 ? "" : concat(row), ",0\n");
  const SeriesTable table =
      read_series(written("a.csv", text), SeriesColumns("x,target=y,series=sensor,time=time"));
  EXPECT_EQ(table.starts, (std::vector<std::int64_t>{0, 5}));
  EXPECT_EQ(table.gaps, (std::vector<std::int64_t>{3, 8}))
      << "one in each series, since row 7 belongs to none";
  EXPECT_EQ(table.row(5)[0], 1);
  EXPECT_EQ(table.numbers.back(), 12);
}

TEST_F(Series, ScalesByTrainingRowsOnly) {
  const SeriesTable table = read_series(counting(10), SeriesColumns("x,z,target=y,series=flight"));
  const SeriesWindows windows = windows_of(table, 3, 0.3);
  const SeriesScale scale = scale_of(table, windows.training_rows);
  EXPECT_NEAR(scale.columns[0].mean, 8, 1e-12) << "the mean of 0 to 6 and 10 to 16";
  EXPECT_NEAR(scale.columns[2].deviation, 2 * std::sqrt(29.0), 1e-12);
  EXPECT_EQ(scale.columns[1].deviation, 1) << "not 0";
  EXPECT_EQ(scale_from(text_of(scale), 3, "scale"), scale);
  for (const char* text : {"1/2", "1/2,3/0,5/6", "1/2,3,5/6", "1/2,x/4,5/6", "1/2,3/4,5/6,7/8"})
    EXPECT_THROW(scale_from(text, 3, "scale"), ConfigError) << text;
  const SeriesExamples examples(table, scale, 3, {4});
  Batch batch = examples.empty_batch(2, stream_);
  examples.write(0, {batch, 1});
  EXPECT_EQ(batch.at("kinematics").shape(), (Shape{2, 3, 2}));
  const float* values = batch.at("kinematics").data<float>() + 6;
  EXPECT_FLOAT_EQ(values[2], static_cast<float>((5 - 8) / std::sqrt(29.0)));
  EXPECT_EQ(values[3], 0);
  EXPECT_FLOAT_EQ(batch.at("value").data<float>()[1],
                  static_cast<float>((12 - 16) / (2 * std::sqrt(29.0))));
}

}  // namespace
}  // namespace hybrid_trainer
