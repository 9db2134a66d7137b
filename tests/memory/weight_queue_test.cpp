#include "memory/weight_queue.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/memory/away_weight.h"
#include "tests/trainer/temporary_folder.h"

namespace hybrid_trainer {
namespace {

/// Four weights of 2 MiB in a file, each filled with its number.
class WeightQueueTest : public ::testing::Test {
 protected:
  WeightQueueTest() {
    for (int i = 0; i < 4; ++i) {
      homes_.push_back(Tensor::empty({1 << 19}, DType::kF32, MemoryKind::kParameters, file_));
      fill(homes_.back(), static_cast<float>(i));
    }
  }
  static void fill(const Tensor& tensor, float value) {
    std::fill_n(tensor.data<float>(), tensor.elements(), value);
  }
  /// Holds it once, and returns what it held.
  float use(int i, bool changed = false) {
    const Tensor here = queue_.acquire(homes_[static_cast<std::size_t>(i)], stream_);
    live_ = std::max(live_, stream_.pool()->use().live_total);
    const float value = here.data<float>()[here.elements() - 1];
    if (changed) fill(here, value + 10);
    queue_.release(homes_[static_cast<std::size_t>(i)], here, changed);
    return value;
  }
  TemporaryFolder folder_;
  Stream stream_{make_device_pool()};
  Stream file_{make_file_pool(stream_.device(), folder_.path().string(), "memory.folder")};
  std::vector<Tensor> homes_;
  WeightQueue queue_;
  std::size_t live_ = 0;
};

constexpr std::size_t kWeightBytes = std::size_t{2} << 20;

TEST_F(WeightQueueTest, GivesWhatLiesThereInAnyOrder) {
  for (const int i : {0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3, 3, 2, 1, 0, 2, 0, 3, 1, 0, 1, 3})
    EXPECT_EQ(use(i), i);
}

TEST_F(WeightQueueTest, HoldsTheNextOneFromTheSecondTimeOn) {
  for (const int i : {0, 1, 2, 3}) use(i);
  EXPECT_LT(live_, 2 * kWeightBytes) << "nothing is known yet";
  for (const int i : {0, 1, 2, 3}) use(i);
  EXPECT_GE(live_, 2 * kWeightBytes);
  EXPECT_LT(live_, 3 * kWeightBytes);
  queue_.settle();
  EXPECT_EQ(stream_.pool()->use().live_total, 0u);
}

TEST_F(WeightQueueTest, WhatWasChangedIsThereForWhoeverComesNext) {
  for (int round = 0; round < 4; ++round)
    for (const int i : {0, 1, 2, 3}) EXPECT_EQ(use(i, true), i + 10 * round);
  EXPECT_EQ(use(3, true), 43) << "just written";
  EXPECT_EQ(use(3), 53);
  queue_.settle();
  EXPECT_EQ(homes_[3].data<float>()[0], 53);
}

TEST_F(WeightQueueTest, ReadsNothingAheadThatMayChangeBefore) {
  for (int round = 0; round < 3; ++round) {
    const Tensor held = queue_.acquire(homes_[0], stream_);
    use(1);
    fill(held, static_cast<float>(round));
    queue_.release(homes_[0], held, true);
    EXPECT_EQ(use(0), round);
  }
}

TEST_F(WeightQueueTest, GoesWithoutReadingAheadWhereMemoryIsTooSmall) {
  const Stream small(make_device_pool(stream_.device(), kWeightBytes + kWeightBytes / 2));
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 4; ++i) {
      const Tensor here = queue_.acquire(homes_[i], small);
      EXPECT_EQ(here.data<float>()[0], static_cast<float>(i));
      queue_.release(homes_[i], here, false);
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer
