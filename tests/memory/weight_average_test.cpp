#include "memory/weight_copies.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hybrid_trainer {
namespace {

class WeightAverageTest : public ::testing::Test {
 protected:
  void set(float value) { master().data<float>()[1] = value; }
  Tensor master() { return weight_.master_in_place(); }
  float value() { return master().data<float>()[1]; }
  /// Reads the mean by exchanging it with the weight twice.
  float mean(WeightAverage& average) {
    average.exchange(all_, stream_);
    const float held = value();
    average.exchange(all_, stream_);
    return held;
  }
  Stream stream_{MemoryPool::create("device")}, host_{MemoryPool::create("host")};
  Parameter weight_{"w", {3}, Role::kVector, stream_};
  std::vector<Parameter*> all_{&weight_};
};

TEST_F(WeightAverageTest, MatchesExponentiallyWeightedMean) {
  WeightAverage average(2, host_);
  double sum = 0, factors = 0;
  for (int i = 1; i <= 6; ++i) {
    set(static_cast<float>(i * i));
    average.add(all_, stream_);
    sum = sum * std::sqrt(0.5) + i * i;
    factors = factors * std::sqrt(0.5) + 1;
    EXPECT_NEAR(mean(average), sum / factors, 1e-5) << i;
    EXPECT_EQ(value(), static_cast<float>(i * i)) << "exchanging twice restores the weight";
  }
}

TEST_F(WeightAverageTest, SamplesEverySixteenthOfHalfLife) {
  WeightAverage average(32, host_);
  for (const float seen : {1.0f, 100.0f, 3.0f}) {
    set(seen);
    average.add(all_, stream_);
  }
  const double kept = std::exp2(-2.0 / 32);
  EXPECT_NEAR(mean(average), (kept * 1 + 3) / (kept + 1), 1e-5);
}

TEST_F(WeightAverageTest, FollowsPredictedStep) {
  WeightAverage average(4, host_);
  set(1);
  average.add(all_, stream_);
  const Tensor direction = Tensor::zeros({3}, DType::kF32, MemoryKind::kPredictor, stream_);
  direction.data<float>()[1] = 2;
  average.follow({direction}, 0.25, stream_);
  EXPECT_EQ(mean(average), 1.5f);
}

TEST_F(WeightAverageTest, IsDisabledWithoutHalfLife) {
  WeightAverage average(0, host_);
  average.add(all_, stream_);
  EXPECT_FALSE(average.exists());
  EXPECT_EQ(host_.pool()->use().live_total, 0u);
  State state;
  average.save(state, all_);
  EXPECT_TRUE(state.tensors.empty() && state.integers.empty());
}

TEST_F(WeightAverageTest, ResumesFromSavedState) {
  WeightAverage whole(4, host_), resumed(4, host_);
  for (const float seen : {1.0f, 5.0f}) {
    set(seen);
    whole.add(all_, stream_);
  }
  State state;
  whole.save(state, all_);
  resumed.load(state, all_, stream_);
  set(-3);
  whole.add(all_, stream_);
  set(-3);
  resumed.add(all_, stream_);
  EXPECT_EQ(mean(resumed), mean(whole));
}

}  // namespace
}  // namespace hybrid_trainer
