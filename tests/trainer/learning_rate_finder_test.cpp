#include <gtest/gtest.h>

#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/observability/jsonl_sink.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

std::vector<StepRecord> records_in(const std::filesystem::path& run) {
  std::vector<StepRecord> records;
  for_each_record(run / "metrics.jsonl",
                  [&](const StepRecord& record) { records.push_back(record); });
  return records;
}

std::vector<double> losses_in(const std::filesystem::path& run) {
  std::vector<double> losses;
  for (const StepRecord& record : records_in(run)) losses.push_back(record.loss);
  return losses;
}

struct FinderCase {
  std::string name, optimizer, precision, weights;
  std::int64_t micro_batches;
};

class FinderRun : public ::testing::TestWithParam<FinderCase> {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    prepare_tiny_data(folder_->path() / "data");
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static HybridTrainerConfig config(double learning_rate) {
    HybridTrainerConfig config = tiny_config();
    const FinderCase& given = GetParam();
    config.optimizer.name = given.optimizer;
    config.optimizer.learning_rate = learning_rate;
    config.optimizer.groups = {{.match = "vector", .learning_rate = 2 * learning_rate}};
    config.schedule.name = "constant";
    config.phases.warmup_steps = 27;
    config.mixed_precision.warmup = config.mixed_precision.full = given.precision;
    config.memory.weights = given.weights;
    config.data.batch_size = 8 / given.micro_batches;
    config.gradient_accumulation.micro_batches = given.micro_batches;
    config.learning_rate_finder = {.mode = "warmup", .interval = 4};
    return config;
  }
  std::filesystem::path run(const std::string& name) const { return scratch_ / name; }
  std::filesystem::path data() const { return folder_->path() / "data"; }
  TemporaryFolder scratch_;
  static std::unique_ptr<TemporaryFolder> folder_;
};
std::unique_ptr<TemporaryFolder> FinderRun::folder_;

INSTANTIATE_TEST_SUITE_P(All, FinderRun,
                         ::testing::Values(FinderCase{"adamw", "adamw", "fp32", "device", 1},
                                           FinderCase{"muon", "muon", "bf16", "device", 2},
                                           FinderCase{"lion", "lion", "bf16", "host", 8},
                                           FinderCase{"sgd", "sgd", "fp32", "file", 1}),
                         [](const auto& test) { return test.param.name; });

TEST_P(FinderRun, RejectedProbesRestoreWeightsBitwise) {
  HybridTrainerConfig with = config(30), plain = with;  // far too high: all probes fail
  plain.learning_rate_finder.mode = "off";
  train_tiny(with, data(), run("with"));
  train_tiny(plain, data(), run("plain"));
  EXPECT_EQ(losses_in(run("with")), losses_in(run("plain")));
  std::int64_t probes = 0;
  for (const StepRecord& record : records_in(run("with"))) probes += record.probe_position == 0.0;
  EXPECT_EQ(probes, 2);
}

TEST_P(FinderRun, ResumesAtAnyStepBitwise) {
  HybridTrainerConfig whole = config(1e-5);
  whole.checkpoint.every_steps = 1;
  whole.checkpoint.keep = 100;
  train_tiny(whole, data(), run("whole"));
  const std::vector<StepRecord> records = records_in(run("whole"));
  ASSERT_GT(*records.back().rate_factor, 4);
  EXPECT_NEAR(records.back().learning_rate, 1e-5 * *records.back().rate_factor, 1e-12);
  const std::string wanted = newest_checkpoint_digest(run("whole"));
  whole.checkpoint.every_steps = 0;
  for (const int stop :
       {3, 4, 6, 8, 9, 11, 26}) {  // of the schedule's ramp, in a window, at probes
    const std::filesystem::path cut = run(concat("cut", stop));
    copy_up_to(run("whole"), cut, stop, 40);
    train_tiny(whole, data(), cut, true);
    ASSERT_EQ(losses_in(cut), losses_in(run("whole"))) << stop;
    ASSERT_EQ(newest_checkpoint_digest(cut), wanted) << stop;
  }
}

TEST_P(FinderRun, SimulatedPeakMatchesMeasuredPeak) {
  for (const std::int64_t predicted : {0, 6}) {
    HybridTrainerConfig given = config(1e-5);
    given.phases.max_predict_steps = predicted;
    const auto at = run(std::to_string(predicted));
    train_tiny(given, data(), at);
    given.model.vocabulary = 17;
    const MemoryNeed need = simulate_memory(given, {});
    std::size_t peak = 0;
    for (const StepRecord& record : records_in(at))
      if (record.phase == Phase::kWarmup) peak = std::max(peak, record.device_memory.peak_total);
    const auto planned = static_cast<double>(need.phase(Phase::kWarmup).peak_bytes);
    EXPECT_NEAR(planned / static_cast<double>(peak), 1, 0.01) << predicted;
  }
}

/// The best constant rate of this model, found by trial, is 0.01 to 0.02 (AdamW, 120 steps).
TEST(LearningRateFinderRun, FindsGoodRateFromSixtyTimesLower) {
  const TemporaryFolder folder;
  prepare_tiny_data(folder / "data");
  HybridTrainerConfig config = tiny_config();
  config.optimizer.name = "adamw";
  config.optimizer.learning_rate = 0.015 / 60;
  config.schedule.name = "constant";
  config.training.steps = 120;
  config.phases.warmup_steps = 100;
  config.phases.max_predict_steps = 0;
  const TrainingRunResult low = train_tiny(config, folder / "data", folder / "low");
  config.learning_rate_finder.mode = "warmup";
  std::string console;
  const TrainingRunResult found =
      train_tiny(config, folder / "data", folder / "found", false, &console);
  ASSERT_TRUE(found.summary.learning_rate_finder);
  EXPECT_FALSE(low.summary.learning_rate_finder);
  const RunSummary::RateFinder& finder = *found.summary.learning_rate_finder;
  EXPECT_GT(finder.learning_rate, 0.015 / 4);
  EXPECT_LT(finder.learning_rate, 0.015 * 4);
  EXPECT_NEAR(finder.learning_rate, config.optimizer.learning_rate * finder.factor, 1e-9);
  EXPECT_LT(*found.summary.final_validation_loss, *low.summary.final_validation_loss - 0.2);
  const PhaseUse &with = found.summary.phase(Phase::kWarmup),
                 &without = low.summary.phase(Phase::kWarmup);
  EXPECT_NEAR(with.cost - without.cost, finder.cost, 1e-9);
  EXPECT_NE(found.summary_json.find(concat("\"learning_rate_finder\":{\"factor\":")),
            std::string::npos);
  EXPECT_TRUE(contains(console, "probes every 12 updates"));
  EXPECT_TRUE(contains(console, "learning rate raised"));
  std::ifstream report(folder / "found" / "report.html");
  const std::string page{std::istreambuf_iterator<char>(report), {}};
  EXPECT_TRUE(contains(page, "Learning rate found"));
  EXPECT_TRUE(contains(page, "does not make the run faster"));
}

TEST(LearningRateFinderConfigs, RejectsSettingsThatNeverProbe) {
  HybridTrainerConfig config = tiny_config();
  config.learning_rate_finder = {.mode = "warmup", .interval = 4};
  config.phases.warmup_steps = 9;  // 4 steps of the schedule, 4 updates, 1 probe
  EXPECT_TRUE(config.problems().empty());
  config.phases.warmup_steps = 8;
  config.phases.method = "asynchronous_optimizer";
  const auto message = message_of<ConfigError>([&] { config.validate(); });
  for (const char* word : {"phases.warmup_steps: got 8", "at least 9",
                           "learning_rate_finder.mode: got warmup", "want off"})
    EXPECT_TRUE(contains(message, word));
}

}  // namespace
}  // namespace hybrid_trainer
