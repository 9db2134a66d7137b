#include "src/trainer/step/step_scales.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

LossScale scale_of(std::int64_t value, std::int64_t growth_steps) {
  MixedPrecisionConfig config;
  config.loss_scale = value;
  config.loss_scale_growth_steps = growth_steps;
  return LossScale(config);
}

TEST(LossScale, DoublesAfterConsecutiveFiniteSteps) {
  LossScale scale = scale_of(1024, 3);
  EXPECT_FALSE(scale.add_finite_step());
  EXPECT_FALSE(scale.add_finite_step());
  EXPECT_TRUE(scale.add_finite_step());
  EXPECT_EQ(scale.value(), 2048);
  scale.add_finite_step();
  scale.add_finite_step();
  EXPECT_TRUE(scale.halve());
  EXPECT_EQ(scale.value(), 1024);
  EXPECT_FALSE(scale.add_finite_step());  // the count restarts
  EXPECT_EQ(scale.overflows(), 1);
}

TEST(LossScale, StaysBetweenOneAndMaximum) {
  LossScale least = scale_of(2, 1);
  EXPECT_TRUE(least.halve());
  EXPECT_FALSE(least.halve());
  EXPECT_EQ(least.value(), 1);
  EXPECT_EQ(least.overflows(), 1);
  LossScale largest = scale_of(LossScale::kLargest, 1);
  EXPECT_FALSE(largest.add_finite_step());
  EXPECT_EQ(largest.value(), static_cast<double>(LossScale::kLargest));
}

TEST(LossScale, ResumesFromSavedState) {
  LossScale scale = scale_of(256, 4), other = scale_of(65536, 9);
  scale.halve();
  for (int i = 0; i < 3; ++i) scale.add_finite_step();
  State state;
  scale.save(state);
  other.load(state);
  EXPECT_EQ(other.value(), 128);
  EXPECT_EQ(other.overflows(), 1);
  EXPECT_TRUE(other.add_finite_step());
  EXPECT_EQ(other.value(), 256);
  for (auto& [name, value] : state.integers) value = 0;
  EXPECT_THROW(other.load(state), DataError);
}

}  // namespace
}  // namespace hybrid_trainer
