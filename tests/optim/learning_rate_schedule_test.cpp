#include "hybrid_trainer/optim/learning_rate_schedule.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

ScheduleConfig schedule(const std::string& name) {
  ScheduleConfig config;
  config.name = name;
  config.warmup_steps = 10;
  config.final_fraction = 0.1;
  config.decay_share = 0.25;
  return config;
}

TEST(LearningRate, EveryScheduleWarmsUpLinearly) {
  for (const std::string& name : schedule_names()) {
    EXPECT_DOUBLE_EQ(learning_rate(schedule(name), 2.0, 0, 110), 0.2) << name;
    EXPECT_DOUBLE_EQ(learning_rate(schedule(name), 2.0, 4, 110), 1.0) << name;
    EXPECT_DOUBLE_EQ(learning_rate(schedule(name), 2.0, 9, 110), 2.0) << name;
    EXPECT_DOUBLE_EQ(learning_rate(schedule(name), 2.0, 10, 110), 2.0) << name;
  }
}

TEST(LearningRate, CosineDecaysToFloor) {
  const ScheduleConfig config = schedule("cosine");
  EXPECT_NEAR(learning_rate(config, 2.0, 60, 110), 2.0 * 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(config, 2.0, 35, 110), 2.0 * (0.1 + 0.9 * 0.8535533905932737), 1e-12);
  EXPECT_NEAR(learning_rate(config, 2.0, 110, 110), 0.2, 1e-12);
  EXPECT_NEAR(learning_rate(config, 2.0, 5000, 110), 0.2, 1e-12);
}

TEST(LearningRate, WsdHoldsPeakThenDecaysLinearly) {
  const ScheduleConfig config = schedule("wsd");
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 150, 200), 2.0);
  EXPECT_NEAR(learning_rate(config, 2.0, 175, 200), 2.0 * 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(config, 2.0, 200, 200), 0.2, 1e-12);
  EXPECT_NEAR(learning_rate(config, 2.0, 300, 200), 0.2, 1e-12);
}

TEST(LearningRate, ConstantDoesNotChange) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule("constant"), 2.0, 109, 110), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule("constant"), 2.0, 5000, 110), 2.0);
}

TEST(LearningRate, HandlesNoWarmupNoDecayAndShortRuns) {
  ScheduleConfig config = schedule("cosine");
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 4, 5), 1.0);
  config.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 0, 100), 2.0);
  config.name = "wsd";
  config.decay_share = 0;
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 99, 100), 2.0);
}

TEST(LearningRate, UnknownScheduleSuggestsNearestName) {
  try {
    learning_rate(schedule("cosin"), 1, 50, 100);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("cosine"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hybrid_trainer
