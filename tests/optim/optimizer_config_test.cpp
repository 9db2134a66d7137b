#include "hybrid_trainer/optim/optimizer_config.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/optim/learning_rate_schedule.h"

namespace hybrid_trainer {
namespace {

std::vector<std::string> problems_of(const OptimizerConfig& config) {
  std::vector<std::string> problems;
  collect_range_problems(config, "optimizer", problems);
  config.collect_problems("optimizer", problems);
  return problems;
}

TEST(OptimizerConfig, DefaultsAreValid) {
  EXPECT_TRUE(problems_of(OptimizerConfig{}).empty());
  std::vector<std::string> problems;
  collect_range_problems(ScheduleConfig{}, "schedule", problems);
  EXPECT_TRUE(problems.empty());
}

TEST(OptimizerConfig, ReportsEveryWrongFieldWithPath) {
  OptimizerConfig config;
  config.name = "adam";
  config.learning_rate = -1;
  config.betas = {0.9};
  config.momentum = 1;
  const auto problems = problems_of(config);
  ASSERT_EQ(problems.size(), 4u);
  for (const std::string& problem : problems) EXPECT_EQ(problem.rfind("optimizer.", 0), 0u);
}

TEST(OptimizerConfig, RejectsBetasOutOfRange) {
  OptimizerConfig config;
  config.betas = {0, 0};
  EXPECT_EQ(problems_of(config).size(), 1u);
  config.betas = {0.9, 1.0};
  EXPECT_EQ(problems_of(config).size(), 1u);
}

TEST(OptimizerConfig, RejectsUnsupportedStateBits) {
  OptimizerConfig config;
  for (const std::int64_t bits : {4, 12, 64}) {
    config.state_bits = bits;
    const auto problems = problems_of(config);
    ASSERT_EQ(problems.size(), 1u) << bits;
    EXPECT_EQ(problems[0].rfind(concat("optimizer.state_bits: got ", bits), 0), 0u) << problems[0];
  }
  config.state_bits = 8;
  for (const std::string& name : optimizer_names()) {
    config.name = name;
    const bool has = name == "adamw" || name == "muon" || name == "lion";
    EXPECT_EQ(problems_of(config).size(), has ? 0u : 1u) << name;
  }
}

TEST(OptimizerConfig, ReportsGroupProblemAtItsOrigin) {
  OptimizerConfig config;
  config.groups.resize(1);
  config.groups[0].match = "wte*";
  config.groups[0].betas = std::vector<double>{0.9};
  const auto problems = problems_of(config);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].rfind("optimizer.groups[0].betas: ", 0), 0u) << problems[0];
  config.groups[0].betas.reset();
  config.betas = {0.9};
  ASSERT_EQ(problems_of(config).size(), 1u);
  EXPECT_EQ(problems_of(config)[0].rfind("optimizer.betas: ", 0), 0u);
  config.betas = OptimizerConfig().betas;
  config.groups[0].state_bits = 12;
  ASSERT_EQ(problems_of(config).size(), 1u);
  EXPECT_EQ(problems_of(config)[0].rfind("optimizer.groups[0].state_bits: ", 0), 0u);
}

}  // namespace
}  // namespace hybrid_trainer
