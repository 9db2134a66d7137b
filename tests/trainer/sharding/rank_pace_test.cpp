#include "src/trainer/sharding/rank_links.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(StragglerDetector, ReportsRankTenPercentSlower) {
  StragglerDetector pace;
  EXPECT_FALSE(pace.recent());
  pace.add({1, 1.05, 1});
  EXPECT_FALSE(pace.recent());
  EXPECT_FALSE(pace.overall());
  for (int step = 0; step < 50; ++step) pace.add({1, 1.5, 1});
  ASSERT_TRUE(pace.recent());
  EXPECT_EQ(pace.recent()->rank, 1);
  EXPECT_NEAR(pace.recent()->ratio, 1.5, 0.01);
  EXPECT_NEAR(pace.overall()->ratio, (50 * 1.5 + 1.05) / 51, 1e-9);
}

TEST(StragglerDetector, RecentPaceForgetsOldSteps) {
  StragglerDetector pace;
  for (int step = 0; step < 50; ++step) pace.add({2, 1});
  for (int step = 0; step < 50; ++step) pace.add({1, 1});
  EXPECT_FALSE(pace.recent());
  ASSERT_TRUE(pace.overall());
  EXPECT_EQ(pace.overall()->rank, 0);
  EXPECT_NEAR(pace.overall()->ratio, 1.5, 1e-9);
}

TEST(StragglerDetector, SkipsStepsWithUnknownSeconds) {
  StragglerDetector pace;
  pace.add({3, 0});
  pace.add({1, 1});
  EXPECT_FALSE(pace.overall());
}

TEST(StragglerDetector, ReportsNothingForSingleRank) {
  StragglerDetector pace;
  pace.add({3});
  EXPECT_FALSE(pace.overall());
}

}  // namespace
}  // namespace hybrid_trainer
