#include "hybrid_trainer/memory/memory_config.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(PredictAwareMemoryConfig, PresetsAreValidAndDiffer) {
  const auto conservative = PredictAwareMemoryConfig::conservative();
  const auto balanced = PredictAwareMemoryConfig::balanced();
  const auto aggressive = PredictAwareMemoryConfig::aggressive();
  std::vector<std::string> problems;
  for (const auto& config : {conservative, balanced, aggressive}) {
    collect_range_problems(config, "predict_aware_memory", problems);
  }
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(conservative.offload_strategy, "none");
  EXPECT_EQ(balanced.offload_strategy, "cpu_offload");
  EXPECT_LT(aggressive.async_restore_lookahead, balanced.async_restore_lookahead);
}

TEST(PredictAwareMemoryConfig, ReportsPathOfInvalidField) {
  PredictAwareMemoryConfig config;
  config.offload_strategy = "drop";
  std::vector<std::string> problems;
  collect_range_problems(config, "predict_aware_memory", problems);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].rfind("predict_aware_memory.offload_strategy", 0), 0u);
}

}  // namespace
}  // namespace hybrid_trainer
