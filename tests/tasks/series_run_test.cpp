// A network predicts a number from windows of a table.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "src/files/output_file.h"
#include "src/tasks/network_task.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

class SeriesRun : public ::testing::Test {
 protected:
  /// Oscillations with three periods. The target is the period, with a little noise.
  std::filesystem::path swings(const std::string& name, int rows_of_each) const {
    std::string text = "flight,left,right,period\n";
    for (int flight = 0; flight < 30; ++flight)
      for (int row = 0; row < rows_of_each; ++row) {
        const int period = 4 + 2 * (flight % 3);
        const auto words =
            philox({4, static_cast<std::uint64_t>(flight), 0}, static_cast<std::uint64_t>(row));
        const double angle = 6.2832 * (row + flight) / period;
        text += concat(flight, ",", 100 + 5 * std::sin(angle) + to_unit_float(words[0]), ",",
                       std::cos(angle), ",", period + 0.2 * (to_unit_float(words[1]) - 0.5), "\n");
      }
    write_file(scratch_ / name, text);
    return scratch_ / name;
  }
  static HybridTrainerConfig config() {
    HybridTrainerConfig config = tiny_config();
    const HybridTrainerConfig preset = preset_config("series-tiny");
    config.model = preset.model;
    config.model.layers = 1;
    config.data = preset.data;
    config.data.sequence_length = 16;
    config.data.batch_size = 8;
    config.data.columns = "left,right,target=period,series=flight";
    config.mixed_precision = MixedPrecisionConfig::conservative();
    config.training.steps = 150;
    return config;
  }
  TrainingRunResult train(const HybridTrainerConfig& config, const std::filesystem::path& data,
                          const std::string& run, bool resume = false) {
    console_.str("");
    return run_training({.config = config,
                         .data = data,
                         .run = scratch_ / run,
                         .resume = resume,
                         .command = "test",
                         .task = [](const TrainingRunSettings& all) { return network_task(all); }},
                        console_);
  }
  std::string refusal(const HybridTrainerConfig& config, const std::filesystem::path& data) {
    try {
      train(config, data, "refused");
    } catch (const Error& error) {
      EXPECT_FALSE(std::filesystem::exists(scratch_ / "refused"));
      return error.what();
    }
    return "nothing was thrown";
  }
  const TemporaryFolder scratch_;
  std::ostringstream console_;
};

TEST_F(SeriesRun, LearnsFromTableAndKeepsScale) {
  const auto table = swings("swings.csv", 200);
  const TrainingRunResult result = train(config(), table, "run");
  EXPECT_LT(*result.summary.final_validation_loss, 0.1) << "the variance is 1\n" << console_.str();
  EXPECT_NE(console_.str().find("6000 rows of 2 measurements in 30 series"), std::string::npos)
      << console_.str();
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream);
  EXPECT_EQ(run.config.model.series.channels, 2);
  EXPECT_EQ(run.config.model.context, 16);
  EXPECT_EQ(score(run, {}, DType::kF32, stream).examples, 30 * 5) << "in the last 20 of 200 rows";
  const NetworkScore own = score(run, {}, DType::kF32, stream);
  const auto measure = [&](const char* name) {
    for (const Measure& one : own.measures)
      if (one.name == name) return one.sum / one.count;
    return -1.0;
  };
  const double squared = measure("prediction.squared_error");
  EXPECT_NEAR(squared, own.loss * 8.0 / 3, 0.05 * squared)
      << "periods 4, 6 and 8 have a variance of 8/3";
  EXPECT_LT(measure("prediction.absolute_error"), std::sqrt(squared));
  // Other rows are scaled like the training rows.
  const NetworkScore others = score(run, swings("others.csv", 400), DType::kF32, stream);
  EXPECT_LT(others.loss, 0.1);
  EXPECT_EQ(others.examples, 30 * (400 - 16 + 1)) << "windows of all rows";
}

TEST_F(SeriesRun, ResumesBitForBitOnlyWithSameRows) {
  HybridTrainerConfig config = SeriesRun::config();
  config.training.steps = 40;
  const auto table = swings("swings.csv", 200);
  train(config, table, "whole");
  copy_up_to(scratch_ / "whole", scratch_ / "parts", 20, 40);
  train(config, table, "parts", true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "parts"),
            newest_checkpoint_digest(scratch_ / "whole"));
  config.training.steps = 60;
  EXPECT_THROW(train(config, swings("others.csv", 210), "parts", true), Error);
}

TEST_F(SeriesRun, RejectsInvalidTableOrConfig) {
  const auto expect = [&](const HybridTrainerConfig& config, const std::filesystem::path& data,
                          const char* told) {
    const std::string text = refusal(config, data);
    EXPECT_NE(text.find(told), std::string::npos) << text;
  };
  const auto table = swings("swings.csv", 200);
  HybridTrainerConfig config = SeriesRun::config();
  expect(config, {}, "--data is missing: give a table");
  expect(config, scratch_ / "none.csv", "none.csv");
  config.data.columns = "left,middle,target=period";
  expect(config, table, "middle");
  config.data.columns = "";
  expect(config, table, "names no column of measurements");
  config = SeriesRun::config();
  config.data.sequence_length = config.model.context = 64;
  expect(config, table,
         "no window of 64 rows for validation: the longest part of a series "
         "without a gap has 200 rows");
  config = SeriesRun::config();
  config.model.series.channels = 3;
  expect(config, table, "model.series.channels: got 3, but data.columns names 2");
  config = SeriesRun::config();
  config.model.series.scale = "1/2";
  expect(config, table, "model.series.scale: got \"1/2\"");
}

}  // namespace
}  // namespace hybrid_trainer
