#include "src/run/rank_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

// Quantiles of printed tables: t(0.975) = 12.7062, 4.30265, 2.26216 and t(0.995) = 9.92484.
TEST(StudentInterval, MatchesPrintedTables) {
  const Interval two = student_interval({1, 3});
  EXPECT_DOUBLE_EQ(two.mean, 2);
  EXPECT_NEAR(two.high - two.mean, 12.7062, 1e-4);
  const Interval three = student_interval({1, 2, 3});
  EXPECT_NEAR(three.mean - three.low, 4.30265 / std::sqrt(3.0), 1e-5);
  EXPECT_NEAR(student_interval({1, 2, 3}, 0.99).high - 2, 9.92484 / std::sqrt(3.0), 1e-5);
  std::vector<double> ten;
  for (int i = 0; i < 10; ++i) ten.push_back(i);  // variance 55/6
  EXPECT_NEAR(student_interval(ten).high - 4.5, 2.26216 * std::sqrt(55.0 / 60), 1e-5);
}

TEST(StudentInterval, EqualValuesHaveZeroWidthSingleHasNone) {
  const Interval equal = student_interval({2, 2, 2});
  EXPECT_EQ(equal.low, 2);
  EXPECT_EQ(equal.high, 2);
  EXPECT_TRUE(std::isnan(student_interval({2}).low));
  EXPECT_THROW(student_interval({}), Error);
}

}  // namespace
}  // namespace hybrid_trainer
