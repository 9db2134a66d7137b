#include "phases/skip_backward/prediction.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

DirectionTrust trust_of(const std::vector<double>& slopes, std::int64_t window = 8) {
  DirectionTrust trust(window);
  for (const double slope : slopes) trust.add(slope);
  return trust;
}

TEST(DirectionTrust, ConfidenceIsNormalProbabilityOfMean) {
  // Mean −1 with standard error 1: Φ(1).
  EXPECT_NEAR(trust_of({0, -2}).confidence(), 0.841344746, 1e-9);
  EXPECT_NEAR(trust_of({0, 2}).confidence(), 1 - 0.841344746, 1e-9);
  EXPECT_NEAR(trust_of({1, -1, 2, -2}).confidence(), 0.5, 1e-12);
}

TEST(DirectionTrust, IsCertainForEqualSlopes) {
  EXPECT_EQ(trust_of({-1, -1, -1}).confidence(), 1);
  EXPECT_EQ(trust_of({1, 1, 1}).confidence(), 0);
  EXPECT_EQ(trust_of({0, 0, 0}).confidence(), 1) << "a zero direction cannot raise the loss";
}

TEST(DirectionTrust, SingleSlopeGivesNoConfidence) {
  EXPECT_EQ(trust_of({-1}).confidence(), 0);
  EXPECT_EQ(trust_of({}).mean_slope(), 0);
}

TEST(DirectionTrust, ForgetsSlopesOutsideWindow) {
  EXPECT_EQ(trust_of({100, 100, -1, -1}, 2).confidence(), 1);
  EXPECT_EQ(trust_of({100, 100, -1, -3}, 2).mean_slope(), -2);
}

}  // namespace
}  // namespace hybrid_trainer
