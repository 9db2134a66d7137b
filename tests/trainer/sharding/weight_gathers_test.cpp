#include "src/trainer/sharding/weight_parts.h"

#include <gtest/gtest.h>

#include "src/distributed/decorated_communicator.h"
#include "src/distributed/single_communicator.h"

namespace hybrid_trainer {
namespace {

/// Counts collectives that begin; runs each immediately.
class CountedBeginnings final : public DecoratedCommunicator {
 public:
  explicit CountedBeginnings(Communicator& ranks) : DecoratedCommunicator(ranks) {}
  CollectiveTicket begin(CollectiveJob job, const Stream& stream) override {
    job(ranks(), stream);
    return ++begun;
  }
  std::int64_t begun = 0;

 protected:
  void make(const Stream*, const std::function<void()>& call) override { call(); }
};

class WeightGathersTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kElements = 8;

  void add_weights(WeightGathers& gathers, int count) {
    for (int i = 0; i < count; ++i) {
      own_.push_back(
          std::make_unique<Parameter>(concat("w", i), Shape{kElements}, Role::kVector, stream_));
      gathers.add({kElements}, *own_.back(), {{0, kElements}});
    }
  }
  float take(WeightGathers& gathers, std::size_t weight) {
    return gathers.take(weight, DType::kF32, stream_).data<float>()[0];
  }
  void set(std::size_t weight, float value) {
    own_[weight]->master_in_place().data<float>()[0] = value;
  }

  const Stream stream_{MemoryPool::create("rank")};
  SingleCommunicator alone_;
  CountedBeginnings ranks_{alone_};
  std::vector<std::unique_ptr<Parameter>> own_;
};

TEST_F(WeightGathersTest, PrefetchesPreviousOrderWithinLimit) {
  WeightGathers gathers(ranks_, 2 * kElements * sizeof(float));
  add_weights(gathers, 4);
  gathers.begin_pass(false);
  for (const std::size_t weight : {0u, 1u, 2u, 3u, 2u, 1u, 0u}) take(gathers, weight);
  EXPECT_EQ(ranks_.begun, 7);
  gathers.begin_pass(false);
  take(gathers, 0);
  EXPECT_EQ(ranks_.begun, 10);  // also 1 and 2
  take(gathers, 1);
  EXPECT_EQ(ranks_.begun, 11);  // also 3
  for (const std::size_t weight : {2u, 3u, 2u, 1u, 0u}) take(gathers, weight);
  EXPECT_EQ(ranks_.begun, 14);  // one for each use
}

/// The first weight of the next pass is then already available.
TEST_F(WeightGathersTest, PrefetchesNextPassIfOneFollows) {
  WeightGathers gathers(ranks_, 2 * kElements * sizeof(float));
  add_weights(gathers, 3);
  const auto pass = [&](bool another_follows) {
    gathers.begin_pass(another_follows);
    for (const std::size_t weight : {0u, 1u, 2u, 1u}) take(gathers, weight);
  };
  pass(true);  // the order is not known yet
  EXPECT_EQ(ranks_.begun, 4);
  pass(true);
  EXPECT_EQ(ranks_.begun, 8 + 2);
  pass(false);
  EXPECT_EQ(ranks_.begun, 12);
}

TEST_F(WeightGathersTest, PrefetchesNothingWithoutBytes) {
  WeightGathers gathers(ranks_, 0);
  add_weights(gathers, 2);
  for (int i = 0; i < 2; ++i) {
    gathers.begin_pass(false);
    take(gathers, 0);
    EXPECT_EQ(ranks_.begun, 2 * i + 1);
    take(gathers, 1);
  }
}

/// Small weights that are used repeatedly must not be gathered more often than they are used.
TEST_F(WeightGathersTest, GathersRepeatedWeightOncePerUse) {
  WeightGathers gathers(ranks_, 1 << 20);
  add_weights(gathers, 3);
  for (int i = 0; i < 3; ++i) {
    gathers.begin_pass(false);
    for (const std::size_t weight : {0u, 1u, 0u, 1u, 2u, 0u, 1u}) take(gathers, weight);
    gathers.end_pass(stream_);
  }
  EXPECT_EQ(ranks_.begun, 3 * 7);
}

TEST_F(WeightGathersTest, DeliversWeightsInAnyOrder) {
  WeightGathers gathers(ranks_, 100);
  add_weights(gathers, 3);
  for (std::size_t i = 0; i < 3; ++i) set(i, static_cast<float>(i + 1));
  for (const std::vector<std::size_t>& pass :
       {std::vector<std::size_t>{0, 1, 2}, {0, 2, 1}, {1, 0}, {1, 0, 1, 2}}) {
    gathers.begin_pass(false);
    for (const std::size_t weight : pass)
      EXPECT_EQ(take(gathers, weight), static_cast<float>(weight + 1));
  }
}

/// An evaluation prefetches nothing and does not affect the prefetching of training.
TEST_F(WeightGathersTest, DoesNotPrefetchOutsidePass) {
  WeightGathers gathers(ranks_, 1);
  add_weights(gathers, 3);
  const std::vector<std::size_t> training{0, 1, 2, 1}, evaluation{0, 1, 2, 0, 1, 2};
  for (int i = 0; i < 3; ++i) {
    gathers.begin_pass(false);
    for (const std::size_t weight : training) {
      const std::int64_t before = ranks_.begun;
      take(gathers, weight);
      if (i > 0 && weight == 0) {
        EXPECT_EQ(ranks_.begun, before + 2);
      }
    }
    gathers.end_pass(stream_);
    for (const std::size_t weight : evaluation) take(gathers, weight);
  }
  EXPECT_EQ(ranks_.begun, static_cast<std::int64_t>(3 * (training.size() + evaluation.size())));
}

TEST_F(WeightGathersTest, DiscardsOutdatedPrefetch) {
  WeightGathers gathers(ranks_, 100);
  add_weights(gathers, 2);
  for (int i = 0; i < 3; ++i) {
    gathers.begin_pass(false);
    take(gathers, 0);
    set(1, static_cast<float>(i + 5));  // from the second pass on, 1 is prefetched
    gathers.end_pass(stream_);
    EXPECT_EQ(take(gathers, 1), static_cast<float>(i + 5));
    gathers.begin_pass(false);
    for (const std::size_t weight : {0u, 1u}) take(gathers, weight);
  }
}

}  // namespace
}  // namespace hybrid_trainer
