#include "hybrid_trainer/nn/parameter.h"

#include <gtest/gtest.h>

#include "tests/support/parameters.h"

namespace hybrid_trainer::testing {
namespace {

class InitializationTest : public ::testing::Test {
 protected:
  Parameter drawn(const std::string& name, std::uint64_t seed) {
    Parameter parameter(name, {200, 100}, Role::kMatrix, stream_);
    initialize_normal(parameter, 0.5, seed, stream_);
    return parameter;
  }
  const Stream stream_ = test_stream();
};

TEST_F(InitializationTest, NormalHasRequestedDeviation) {
  const auto values = values_of(master_of(drawn("w", 1)));
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  EXPECT_NEAR(mean, 0, 0.02);
  EXPECT_NEAR(dot(values, values) / static_cast<double>(values.size()), 0.25, 0.01);
}

TEST_F(InitializationTest, NormalDependsOnlyOnSeedAndName) {
  EXPECT_TRUE(same_bits(master_of(drawn("w", 1)), master_of(drawn("w", 1))));
  EXPECT_FALSE(same_bits(master_of(drawn("w", 1)), master_of(drawn("w", 2))));
  EXPECT_FALSE(same_bits(master_of(drawn("w", 1)), master_of(drawn("v", 1))));
}

}  // namespace
}  // namespace hybrid_trainer::testing
