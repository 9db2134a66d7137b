#include "hybrid_trainer/observability/run_summary.h"

#include <boost/json.hpp>

#include "tests/observability/records.h"

namespace hybrid_trainer {
namespace {

using testing::full_record;

RunSummary small_run() {
  RunSummary summary;
  summary.add(full_record(1, Phase::kWarmup));
  StepRecord second = full_record(2, Phase::kPredict);
  second.loss = 2.5;
  second.recovery = Recovery::kRollBack;
  second.validation_loss.reset();
  second.device_memory.peak_total = 5;
  summary.add(second);
  summary.predictions = {4, 2, 1, 1};
  summary.rolled_back_steps = 7;
  summary.learning_rate_factor = 0.5;
  summary.parameters = 123;
  summary.host_peak_by_kind[static_cast<std::size_t>(MemoryKind::kMasterWeights)] = 70;
  summary.savings = {{"memory.weights", "host", -5, {1, 2, 3, 4}}};
  summary.command = "hybrid train --run \"a b\"";
  summary.phase(Phase::kPredict).precision = "bf16";
  return summary;
}

TEST(RunSummary, SumsStepsByPhase) {
  const RunSummary summary = small_run();
  EXPECT_EQ(summary.steps, 2);
  EXPECT_EQ(summary.sum.tokens, 2048);
  EXPECT_EQ(summary.sum.seconds, 1.0);
  EXPECT_EQ(summary.phase(Phase::kWarmup).steps, 1);
  EXPECT_EQ(summary.phase(Phase::kWarmup).cost, 2.4);
  EXPECT_EQ(summary.phase(Phase::kFull).steps, 0);
  EXPECT_EQ(summary.phase(Phase::kPredict).peak_bytes, 5u);
}

TEST(RunSummary, AggregatesStepsByFieldRule) {
  const RunSummary summary = small_run();
  EXPECT_EQ(summary.sum.step, 2) << "the last value";
  EXPECT_EQ(summary.sum.loss, 2.5);
  EXPECT_EQ(summary.sum.validation_loss, 3.5) << "the last known value";
  EXPECT_EQ(summary.sum.tokens, 2048) << "the sum";
  EXPECT_EQ(summary.sum.device_memory.peak[0], 2000u) << "the maximum";
  EXPECT_EQ(summary.sum.device_memory.peak_total, full_record(1).device_memory.peak_total);
  EXPECT_EQ(summary.phase(Phase::kPredict).sum.tokens, 1024);
  EXPECT_EQ(summary.phase(Phase::kPredict).sum.device_memory.peak_total, 5u);
}

TEST(RunSummary, KeepsLastLosses) {
  EXPECT_EQ(small_run().final_train_loss, 2.5);
  EXPECT_EQ(small_run().final_validation_loss, 3.5);
}

TEST(RunSummary, SumsLearningRateProbes) {
  EXPECT_EQ(to_json(small_run()).find("learning_rate_finder"), std::string::npos);
  RunSummary summary = small_run();
  for (const double factor : {1.0, 4.0, 10.0}) {
    StepRecord record = full_record(3, Phase::kWarmup);
    record.rate_factor = factor;
    record.learning_rate = 1e-4 * factor;
    if (factor > 1) record.probe_position = 16;
    if (factor > 1) record.probe_cost = 0.5;
    summary.add(record);
  }
  const boost::json::value json = boost::json::parse(to_json(summary)).at("learning_rate_finder");
  EXPECT_EQ(json.at("factor").to_number<double>(), 10);
  EXPECT_EQ(json.at("learning_rate").to_number<double>(), 1e-3);
  EXPECT_EQ(json.at("probes").as_int64(), 2);
  EXPECT_EQ(json.at("cost").to_number<double>(), 1);
}

TEST(RunSummary, SumsPlanningCost) {
  EXPECT_EQ(to_json(small_run()).find("planning_cost"), std::string::npos);
  RunSummary summary = small_run();
  for (const double cost : {0.25, 0.5}) {
    StepRecord record = full_record(3, Phase::kFull);
    record.planning_cost = cost;
    summary.add(record);
  }
  const boost::json::value json = boost::json::parse(to_json(summary)).at("predictions");
  EXPECT_EQ(json.at("planning_cost").to_number<double>(), 0.75);
}

TEST(RunSummary, WritesMachineReadableKeys) {
  const boost::json::value json = boost::json::parse(to_json(small_run()));
  EXPECT_EQ(json.at("final_train_loss").as_double(), 2.5);
  EXPECT_EQ(json.at("final_validation_loss").as_double(), 3.5);
  EXPECT_EQ(json.at("tokens").as_int64(), 2048);
  EXPECT_EQ(json.at("seconds").to_number<double>(), 1.0);
  for (Phase phase : kAllPhases) {
    for (const char* key : {"steps", "seconds", "tokens", "cost", "peak_bytes"}) {
      EXPECT_TRUE(json.at("phases").at(name_of(phase)).as_object().contains(key))
          << name_of(phase) << key;
    }
  }
  EXPECT_EQ(json.at("phases").at("predict").at("precision").as_string(), "bf16");
  const boost::json::value& memory = json.at("memory");
  EXPECT_EQ(memory.at("recommended_micro_batch").as_int64(), 12);
  EXPECT_EQ(memory.at("host_peak_bytes_by_kind").at("master_weights").as_int64(), 70);
  EXPECT_EQ(memory.at("file_peak_bytes_by_kind").at("master_weights").as_int64(), 0);
  EXPECT_EQ(boost::json::serialize(memory.at("simulated_savings")),
            R"([{"option":"memory.weights","value":"host","device_bytes":-5,)"
            R"("phases":{"warmup":1,"full":2,"predict":3,"correct":4}}])");
  EXPECT_EQ(json.at("predictions").at("made").as_int64(), 4);
  EXPECT_EQ(json.at("predictions").at("reverted").as_int64(), 1);
  EXPECT_EQ(boost::json::serialize(json.at("recoveries")),
            R"({"reduce_horizon":0,"raise_threshold":0,"reset_predictor":0,"force_full":1,)"
            R"("skip_batch":0,"roll_back":1,"abort":0,"rolled_back_steps":7,)"
            R"("learning_rate_factor":5E-1})");
  EXPECT_EQ(json.at("command").as_string(), "hybrid train --run \"a b\"");
}

TEST(RunSummary, WritesBestAndEarlyStopOnlyIfPresent) {
  RunSummary summary;
  EXPECT_FALSE(boost::json::parse(to_json(summary)).as_object().contains("best"));
  EXPECT_FALSE(boost::json::parse(to_json(summary)).as_object().contains("stopped_early"));
  summary.best = {.step = 40, .validation_loss = 1.25};
  summary.stopped_early = true;
  const boost::json::value json = boost::json::parse(to_json(summary));
  EXPECT_EQ(json.at("best").at("step").as_int64(), 40);
  EXPECT_EQ(json.at("best").at("validation_loss").as_double(), 1.25);
  EXPECT_TRUE(json.at("stopped_early").as_bool());
}

TEST(RunSummary, WritesNullWithoutValidation) {
  EXPECT_TRUE(boost::json::parse(to_json(RunSummary())).at("final_validation_loss").is_null());
}

}  // namespace
}  // namespace hybrid_trainer
