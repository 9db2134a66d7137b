#include "src/observability/jsonl_sink.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "tests/observability/records.h"

namespace {

std::vector<std::string> synced_paths;
int sync_error = 0;

}  // namespace

/// Replaces the system's fsync: records the call, or fails with sync_error.
extern "C" int fsync(int file) {
  synced_paths.push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file)));
  errno = sync_error;
  return sync_error == 0 ? 0 : -1;
}

namespace hybrid_trainer {
namespace {

using testing::full_record;

class JsonlSinkTest : public testing::Folder {
 protected:
  std::filesystem::path metrics() const { return file("metrics.jsonl"); }
  void write_steps(std::int64_t first, std::int64_t last) {
    JsonlSink sink(metrics());
    for (std::int64_t step = first; step <= last; ++step) sink.write(full_record(step));
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> steps;
    for_each_record(metrics(), [&](const StepRecord& record) { steps.push_back(record.step); });
    return steps;
  }
  boost::json::object only_line() const {
    return boost::json::parse(text_of(metrics())).as_object();
  }
  const StepRecord nothing_;
};

TEST_F(JsonlSinkTest, WritesOneObjectPerStep) {
  write_steps(7, 7);
  const boost::json::object line = only_line();
  for (const char* key : {"step",
                          "phase",
                          "loss",
                          "learning_rate",
                          "gradient_norm",
                          "tokens",
                          "seconds",
                          "tokens_per_second",
                          "live_bytes",
                          "peak_bytes",
                          "border_peak_bytes",
                          "memory_status",
                          "memory_share",
                          "memory_risk",
                          "memory_leaks",
                          "host_bytes",
                          "predicted_loss",
                          "confidence",
                          "decision",
                          "kept_fraction",
                          "recovery",
                          "cost",
                          "event",
                          "warns",
                          "validation_loss"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
  EXPECT_EQ(line.at("step").as_int64(), 7);
  EXPECT_EQ(line.at("phase").as_string(), "full");
  EXPECT_EQ(line.at("loss").as_double(), 3.1415926535);
  EXPECT_EQ(line.at("live_bytes").at("gradients").as_int64(), 2000);
  EXPECT_EQ(line.at("peak_bytes").at("parameters").as_int64(), 2000);
  EXPECT_EQ(line.at("decision").as_string(), "accepted");
  EXPECT_EQ(line.at("kept_fraction").to_number<double>(), 1);
  EXPECT_EQ(line.at("recovery").as_string(), "force_full");
  EXPECT_EQ(line.at("cost").as_double(), 2.4);
  EXPECT_FALSE(line.at("warns").as_bool());
}

TEST_F(JsonlSinkTest, WritesNullForAbsentValues) {
  StepRecord record;
  record.step = 1;
  JsonlSink(metrics()).write(record);
  for (const char* key : {"gradient_norm", "predicted_loss", "confidence", "decision",
                          "kept_fraction", "validation_loss"}) {
    EXPECT_TRUE(only_line().at(key).is_null()) << key;
  }
}

TEST_F(JsonlSinkTest, NonFiniteValuesAreNullAndReported) {
  StepRecord record = full_record(1);
  record.loss = std::nan("");
  record.gradient_norm = std::numeric_limits<double>::infinity();
  record.event = "rolled back";
  JsonlSink(metrics()).write(record);
  EXPECT_TRUE(only_line().at("loss").is_null());
  EXPECT_TRUE(only_line().at("gradient_norm").is_null());
  EXPECT_EQ(only_line().at("event").as_string(),
            "loss is NaN, gradient norm is infinite; rolled back");
  EXPECT_TRUE(only_line().at("warns").as_bool());
}

TEST_F(JsonlSinkTest, RoundTripsEveryField) {
  StepRecord written = full_record(3, Phase::kCorrect);
  written.warns = true;
  written.predictor = "merged";
  written.planned_steps = 8;
  written.advantage = -0.125;
  written.lag = 2;
  written.prediction_error = 0.5;
  written.rate_factor = 12.5;
  written.probe_position = 6;
  written.probe_cost = 0.35;
  written.planning_cost = 0.0625;
  written.loss_scale = 4096;
  written.overflows = 3;
  written.slowest_rank = "2 on a host";
  written.slowest_rank_ratio = 1.25;
  written.average_validation_loss = 3.25;
  written.phase_entry_peak_bytes = 12345;
  written.memory_status = "warning";
  written.memory_share = 0.93;
  written.memory_risk = 0.25;
  written.memory_leaks = true;
  written.experts = {.most = {1.5, 2},
                     .least = {0.5, 0},
                     .entropy = {1.25, 0.75},
                     .dead = {0, 3},
                     .balance_loss = 0.125,
                     .z_loss = 0.5};
  written.routing_flips = 0.25;
  written.reward_chosen = 0.5;
  written.reward_rejected = -0.25;
  written.reward_margin = 0.75;
  written.preference_accuracy = 0.875;
  written.validation_reward_margin = 0.625;
  written.overhead_seconds = 0.5;
  written.initial_validation_loss = 3.5;
  written.validation_preference_accuracy = 1;
  JsonlSink(metrics()).write(written);
  std::vector<StepRecord> read;
  for_each_record(metrics(), [&](const StepRecord& record) { read.push_back(record); });
  ASSERT_EQ(read.size(), 1u);
  const boost::json::object line = only_line();
  std::size_t fields = 0;
  StepRecord::visit_fields(
      [&](const char* key, const StepFieldUse&, const auto& wanted, const auto& found,
          const auto& none) {
        EXPECT_TRUE(found == wanted) << key;
        EXPECT_FALSE(wanted == none) << key << " is as in an empty record";
        EXPECT_TRUE(line.contains(key)) << key;
        ++fields;
      },
      written, read[0], nothing_);
  EXPECT_EQ(line.size(), fields);
  EXPECT_EQ(read[0].device_memory.live_total, written.device_memory.live_total);
}

TEST_F(JsonlSinkTest, WritesProbesOnlyWithLearningRateFinder) {
  JsonlSink(metrics()).write(full_record(1));
  EXPECT_FALSE(only_line().contains("rate_factor"));
  StepRecord probed = full_record(2);
  probed.rate_factor = 12.5;
  probed.probe_position = 6;
  probed.probe_cost = 0.35;
  JsonlSink(metrics()).write(probed);
  StepRecord read;
  for_each_record(metrics(), [&](const StepRecord& record) { read = record; });
  EXPECT_EQ(read.rate_factor, 12.5);
  EXPECT_EQ(read.probe_position, 6);
  EXPECT_EQ(read.probe_cost, 0.35);
}

TEST_F(JsonlSinkTest, WritesPlanningCostOnlyIfPresent) {
  JsonlSink(metrics()).write(full_record(1));
  EXPECT_FALSE(only_line().contains("planning_cost"));
  StepRecord model_based = full_record(2);
  model_based.planning_cost = 0.0625;
  JsonlSink(metrics()).write(model_based);
  StepRecord read;
  for_each_record(metrics(), [&](const StepRecord& record) { read = record; });
  EXPECT_EQ(read.planning_cost, 0.0625);
}

TEST_F(JsonlSinkTest, WritesSlowestRankOnlyIfPresent) {
  JsonlSink(metrics()).write(full_record(1));
  EXPECT_FALSE(only_line().contains("slowest_rank"));
  StepRecord over_ranks = full_record(2);
  over_ranks.slowest_rank = "2 on a host";
  over_ranks.slowest_rank_ratio = 1.25;
  JsonlSink(metrics()).write(over_ranks);
  StepRecord read;
  for_each_record(metrics(), [&](const StepRecord& record) { read = record; });
  EXPECT_EQ(read.slowest_rank, "2 on a host");
  EXPECT_EQ(read.slowest_rank_ratio, 1.25);
}

TEST_F(JsonlSinkTest, RoundTripsEveryDecision) {
  JsonlSink sink(metrics());
  StepRecord record = full_record(1);
  for (const Decision decision : kAllDecisions) {
    record.decision = decision;
    sink.write(record);
  }
  std::vector<Decision> read;
  for_each_record(metrics(), [&](const StepRecord& found) { read.push_back(found.decision); });
  EXPECT_EQ(read, std::vector(kAllDecisions.begin(), kAllDecisions.end()));
}

TEST_F(JsonlSinkTest, ResumeAfterTruncationRepeatsNoStep) {
  write_steps(1, 10);
  JsonlSink resumed(metrics());
  resumed.truncate_after(6);
  for (std::int64_t step = 7; step <= 9; ++step) resumed.write(full_record(step));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(JsonlSinkTest, TruncationDropsIncompleteLastLine) {
  write_steps(1, 3);
  std::filesystem::resize_file(metrics(), std::filesystem::file_size(metrics()) - 20);
  JsonlSink resumed(metrics());
  resumed.truncate_after(100);
  resumed.write(full_record(3));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST_F(JsonlSinkTest, DamagedLineDoesNotAffectOthers) {
  write_steps(1, 5);
  std::string text = text_of(metrics());
  text[text.find("\"step\":3")] = '!';
  std::ofstream(metrics(), std::ios::binary) << text << std::string(40, '\0') << '\n';
  JsonlSink resumed(metrics());
  resumed.truncate_after(5);
  resumed.write(full_record(6));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 4, 5, 6}));
  EXPECT_EQ(text_of(metrics()).find('\0'), std::string::npos);
}

/// Sums, differences and indices of records must fit their types, even in foreign files.
TEST_F(JsonlSinkTest, SkipsLinesWithImplausibleNumbers) {
  write_steps(1, 1);
  const std::string line = text_of(metrics());
  std::string text = line;
  const auto changed = [&](const char* key, const std::string& value) {
    const std::size_t at = line.find(concat("\"", key, "\":")) + std::strlen(key) + 3;
    text += line.substr(0, at) + value + line.substr(line.find_first_of(",}", at));
  };
  for (const char* key : {"step", "tokens", "effective_batch"})
    for (const char* value :
         {"9223372036854775807", "-9223372036854775808", "1e300", "2000000000000"})
      changed(key, value);
  for (const char* key : {"loss", "seconds", "learning_rate"})
    for (const char* value : {"1e308", "-1e308"}) changed(key, value);
  changed("peak_total_bytes", "9223372036854775808");
  boost::json::object experts = boost::json::parse(line).as_object();
  experts["experts"] = {{"most", {1, 2}}, {"least", {1}},       {"entropy", {1, 2}},
                        {"dead", {1, 2}}, {"balance_loss", 0.}, {"z_loss", 0.}};
  text += boost::json::serialize(experts) + "\n";
  std::ofstream(metrics(), std::ios::binary) << text;
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1}));
}

TEST_F(JsonlSinkTest, TruncationAfterStepZeroEmptiesFile) {
  write_steps(1, 3);
  JsonlSink(metrics()).truncate_after(0);
  EXPECT_EQ(std::filesystem::file_size(metrics()), 0u);
}

TEST_F(JsonlSinkTest, FullDiskThrowsIoError) {
  JsonlSink sink("/dev/full");
  try {
    sink.write(full_record(5));
    FAIL() << "no error";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("step 5"), std::string::npos) << error.what();
  }
}

TEST_F(JsonlSinkTest, SyncsFileAndItsFolderOnce) {
  const std::string path = std::filesystem::canonical(file("")) / "metrics.jsonl";
  const std::string folder = std::filesystem::path(path).parent_path();
  JsonlSink sink(metrics());
  synced_paths.clear();
  sink.write(full_record(1));
  EXPECT_EQ(synced_paths, std::vector<std::string>{});
  sink.sync();
  EXPECT_EQ(synced_paths, (std::vector{path, folder}));
  EXPECT_EQ(steps(), std::vector<std::int64_t>{1});
  sink.write(full_record(2));
  sink.sync();
  EXPECT_EQ(synced_paths, (std::vector{path, folder, path}));
}

TEST_F(JsonlSinkTest, FailedSyncThrowsIoError) {
  JsonlSink sink(metrics());
  sync_error = EIO;
  try {
    sink.sync();
    ADD_FAILURE() << "no error";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("metrics.jsonl durable: Input/output"),
              std::string::npos)
        << error.what();
  }
  sync_error = 0;
  sink.sync();
}

TEST_F(JsonlSinkTest, MissingFolderOrFileThrows) {
  EXPECT_THROW(JsonlSink(file("missing") / "metrics.jsonl"), CannotCreate);
  EXPECT_THROW(for_each_record(file("none.jsonl"), [](const StepRecord&) {}), MissingInput);
}

}  // namespace
}  // namespace hybrid_trainer
