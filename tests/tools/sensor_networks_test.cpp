// Networks of several sensors and of series, from the command line.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

class SensorNetworks : public ::testing::Test {
 protected:
  ProcessResult call(const std::vector<std::string>& arguments) {
    return run_hybrid(scratch_.path(), arguments);
  }
  void write_table(const std::string& name, const std::string& last_row) {
    std::ofstream out(scratch_ / name);
    out << "speed,height,fuel\n";
    for (int row = 0; row < 400; ++row)
      out << row % 7 << ',' << 3 * (row % 5) << ',' << row % 7 + row % 5 << '\n';
    out << last_row;
  }
  static void expect_told(const ProcessResult& result, const char* what) {
    const std::string all = result.output + result.errors;
    EXPECT_NE(all.find(what), std::string::npos) << all;
  }
  static double planned(const ProcessResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return json::parse(result.output).at("device_peak_bytes").to_number<double>();
  }
  const TemporaryFolder scratch_;
};

TEST_F(SensorNetworks, TridentTrainsWithoutAnyFile) {
  const ProcessResult result = call({"train", "--preset", "trident-tiny", "--run", "run", "--set",
                                     "training.steps=3", "--set", "model.trident.held_out=64"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_told(result, "the best that can be reached is 1.02");
  const ProcessResult measured = call({"eval", "run"});
  EXPECT_EQ(measured.exit_code, 0) << measured.errors;
  expect_told(measured, "events.accuracy");
  const json::object seen = json::parse(call({"inspect", "run", "--json"}).output).as_object();
  EXPECT_EQ(seen.at("examples"), 96);
  EXPECT_FALSE(seen.contains("tokens"));
  const json::object timed =
      json::parse(call({"bench", "--preset", "trident-tiny", "--steps", "1", "--json"}).output)
          .as_object();
  EXPECT_GT(timed.at("tokens_per_second").to_number<double>(), 0);
  expect_told(call({"bench", "--preset", "trident-tiny", "--steps", "1"}), " examples/s: step");
}

TEST_F(SensorNetworks, TheLargePresetIsPlannedFor39GiB) {
  const std::vector<std::string> plan{"plan",   "--preset", "trident",
                                      "--json", "--set",    "phases.max_predict_steps=0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), plan.begin(), plan.end());
    return planned(call(more));
  };
  const double limit = 39.0 * (1 << 30);
  EXPECT_GT(with({"--device-budget", "900GiB", "--host-budget", "900GiB"}), limit);
  const double fitted = with({"--device-budget", "39GiB", "--host-budget", "64GiB"});
  EXPECT_LE(fitted, limit);
  EXPECT_LT(with({"--device-budget", "39GiB", "--host-budget", "64GiB", "--method", "qlora"}),
            fitted);
}

TEST_F(SensorNetworks, ATableIsShownAsItIsRead) {
  write_table("table.csv", "");
  const std::vector<std::string> rows{"rows",        "table.csv", "--preset",
                                      "series-tiny", "--columns", "speed,height,target=fuel"};
  const ProcessResult all = call(rows);
  ASSERT_EQ(all.exit_code, 0) << all.errors;
  expect_told(all, "400 rows of 2 measurements in 1 series; the target is fuel");
  expect_told(all, "input height  0 to 12; scaled by mean 6");
  expect_told(all, "329 to train on and 9 to measure on, each of 32 rows");
  std::vector<std::string> streamed = rows;
  streamed[1] = "-";
  expect_told(run_hybrid(scratch_.path(), streamed, (scratch_ / "table.csv").string()),
              "400 rows of 2 measurements");
  const auto shown = [&](const char* row) {
    std::vector<std::string> more = rows;
    more.insert(more.end(), {"--show", row});
    return call(more);
  };
  expect_told(shown("3"), "input height  6, read as");
  expect_told(shown("3"), "none ends here");
  expect_told(shown("100"), "rows 69 to 100, which tell fuel");
  EXPECT_EQ(shown("401").exit_code, static_cast<int>(ExitCode::kData));
  expect_told(call({"plan", "--preset", "series-tiny"}), "--data TABLE --columns");
}

TEST_F(SensorNetworks, ASeriesIsLearntFromColumns) {
  write_table("table.csv", "");
  const std::vector<std::string> train{"train",
                                       "--preset",
                                       "series-tiny",
                                       "--run",
                                       "run",
                                       "--set",
                                       "training.steps=3",
                                       "--set",
                                       "data.sequence_length=8",
                                       "--columns",
                                       "speed,height,target=fuel"};
  const auto with_data = [&](const std::string& data) {
    std::vector<std::string> all = train;
    all.insert(all.end(), {"--data", data});
    return call(all);
  };
  const ProcessResult without = call(train);
  EXPECT_EQ(without.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_NE(without.errors.find("--data is missing: a table"), std::string::npos) << without.errors;
  std::ofstream(scratch_ / "bad.csv") << "speed,height,fuel\n1,high,2\n";
  const ProcessResult bad = with_data("bad.csv");
  EXPECT_EQ(bad.exit_code, static_cast<int>(ExitCode::kData));
  EXPECT_NE(bad.errors.find("bad.csv: row 1: column height: got \"high\""), std::string::npos)
      << bad.errors;
  write_table("table.csv", "1,,2\n");
  const ProcessResult result = with_data("table.csv");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_told(result,
              "1 of 401 rows is left out, and no window goes across it; table.csv: row "
              "401: column height is empty");
  expect_told(result, "400 rows of 2 measurements in 1 series; the target is fuel");
  EXPECT_EQ(call({"eval", "run"}).exit_code, 0);
  const ProcessResult own = call({"eval", "run", "--data", "table.csv"});
  EXPECT_EQ(own.exit_code, 0);
  std::ofstream(scratch_ / "others.csv") << "a,b,c\n"
                                         << read_text(scratch_ / "table.csv").substr(18);
  EXPECT_EQ(call({"eval", "run", "--data", "others.csv", "--columns", "a,b,target=c"}).output,
            own.output);
  expect_told(call({"eval", "run", "--data", "others.csv"}), "has the columns a, b, c");
  expect_told(call({"eval", "run", "--sequence-length", "4"}), "--sequence-length is of text");
}

}  // namespace
}  // namespace hybrid_trainer
