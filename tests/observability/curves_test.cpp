#include "src/observability/curves.h"

#include <boost/json.hpp>
#include <cmath>

#include "tests/observability/records.h"

namespace hybrid_trainer {
namespace {

using testing::full_record;

boost::json::value curves_of(std::int64_t steps, std::int64_t cycle) {
  Curves curves;
  for (std::int64_t step = 1; step <= steps; ++step) {
    StepRecord record = full_record(step, step % cycle == 0 ? Phase::kCorrect : Phase::kFull);
    record.loss = static_cast<double>(step);
    curves.add(record);
  }
  return boost::json::parse(curves.to_json());
}

TEST(Curves, KeepEveryStepOfShortRun) {
  const boost::json::value json = curves_of(100, 10);
  EXPECT_EQ(json.at("step").as_array().size(), 100u);
  EXPECT_EQ(json.at("bands").as_array().size(), 20u);
  EXPECT_EQ(boost::json::serialize(json.at("bands").at(1)), R"(["correct",10,10])");
}

TEST(Curves, DownsamplingKeepsTokensAndExtremes) {
  const boost::json::value json = curves_of(10000, 500);
  const boost::json::array& loss = json.at("loss").as_array();
  ASSERT_LE(loss.size(), Curves::kMaxPoints);
  EXPECT_GE(loss.size(), Curves::kMaxPoints / 2);
  std::int64_t tokens = 0;
  for (const auto& value : json.at("tokens").as_array()) tokens += value.as_int64();
  EXPECT_EQ(tokens, 10000 * 1024);
  EXPECT_EQ(json.at("stepsPerPoint").as_int64(), 8);
  EXPECT_EQ(json.at("low").at(0).to_number<double>(), 1);
  EXPECT_EQ(json.at("high").at(0).to_number<double>(), 8);
  EXPECT_EQ(loss.at(0).to_number<double>(), 4.5);
  EXPECT_EQ(json.at("step").as_array().back().as_int64(), 10000);
}

TEST(Curves, KeepRarePhasesAsExactBands) {
  const boost::json::value json = curves_of(10000, 500);
  EXPECT_EQ(json.at("bands").as_array().size(), 40u);
  EXPECT_EQ(json.at("phases").as_array().size(), 2u);
}

TEST(Curves, LimitBandsMarksAndEvents) {
  const boost::json::value json = curves_of(20000, 3);
  EXPECT_LE(json.at("bands").as_array().size(), Curves::kMaxPoints);
  EXPECT_LE(json.at("validation").as_array().size(), Curves::kMaxPoints);
  EXPECT_GE(json.at("validation").as_array().size(), Curves::kMaxPoints / 4);
  EXPECT_EQ(json.at("events").as_array().size(), Curves::kMaxEvents);
  EXPECT_EQ(json.at("allEvents").as_int64(), 20000);
}

TEST(Curves, NonFiniteLossLeavesGap) {
  Curves curves;
  StepRecord record = full_record(1);
  record.loss = std::nan("");
  record.predicted_loss = std::nan("");
  curves.add(record);
  const boost::json::value json = boost::json::parse(curves.to_json());
  EXPECT_TRUE(json.at("loss").at(0).is_null());
  EXPECT_TRUE(json.at("predicted").as_array().empty());
}

TEST(Curves, OmitUnusedMemoryKinds) {
  Curves curves;
  StepRecord record = full_record(1);
  record.device_memory.live.fill(0);
  record.device_memory.peak.fill(0);
  record.device_memory.peak[0] = 4;
  curves.add(record);
  const boost::json::value json = boost::json::parse(curves.to_json());
  ASSERT_EQ(json.at("kinds").as_array().size(), 1u);
  EXPECT_EQ(json.at("kinds").at(0).at("name").as_string(), "parameters");
}

}  // namespace
}  // namespace hybrid_trainer
