#include "src/trainer/sharding/rank_links.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(RankPace, ReportsRankTenPercentSlower) {
  RankPace pace;
  EXPECT_FALSE(pace.lately());
  pace.add({1, 1.05, 1});
  EXPECT_FALSE(pace.lately());
  EXPECT_FALSE(pace.overall());
  for (int step = 0; step < 50; ++step) pace.add({1, 1.5, 1});
  ASSERT_TRUE(pace.lately());
  EXPECT_EQ(pace.lately()->rank, 1);
  EXPECT_NEAR(pace.lately()->ratio, 1.5, 0.01);
  EXPECT_NEAR(pace.overall()->ratio, (50 * 1.5 + 1.05) / 51, 1e-9);
}

TEST(RankPace, RecentPaceForgetsOldSteps) {
  RankPace pace;
  for (int step = 0; step < 50; ++step) pace.add({2, 1});
  for (int step = 0; step < 50; ++step) pace.add({1, 1});
  EXPECT_FALSE(pace.lately());
  ASSERT_TRUE(pace.overall());
  EXPECT_EQ(pace.overall()->rank, 0);
  EXPECT_NEAR(pace.overall()->ratio, 1.5, 1e-9);
}

TEST(RankPace, SkipsStepsWithUnknownSeconds) {
  RankPace pace;
  pace.add({3, 0});
  pace.add({1, 1});
  EXPECT_FALSE(pace.overall());
}

TEST(RankPace, ReportsNothingForSingleRank) {
  RankPace pace;
  pace.add({3});
  EXPECT_FALSE(pace.overall());
}

}  // namespace
}  // namespace hybrid_trainer
