#include "hybrid_trainer/data/batch_order.h"

#include <gtest/gtest.h>

#include <set>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kTokens = 1001;

/// Every token that batches [0, batches) hold.
std::multiset<std::int64_t> tokens_in(const BatchOrder& order, std::int64_t batches) {
  std::multiset<std::int64_t> tokens;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const BatchShape shape = order.shape_of(batch);
    for (std::int64_t row = 0; row < shape.batch_size; ++row) {
      for (std::int64_t i = 0; i < shape.sequence_length; ++i)
        tokens.insert(order.start_of(batch, row) + i);
    }
  }
  return tokens;
}

const std::vector<BatchStretch> kStretches{{4, {8, 4}}, {2, {3, 8}}, {3, {1, 16}}};

TEST(BatchOrder, WithoutStretchesGoesThroughTheWindows) {
  const BatchSettings settings{4, 16, true, 7};
  const BatchOrder order(kTokens, settings, "text");
  const WindowOrder windows(kTokens, settings, "text");
  for (std::int64_t batch = 0; batch < 50; ++batch) {
    EXPECT_EQ(order.shape_of(batch), (BatchShape{4, 16}));
    for (std::int64_t row = 0; row < 4; ++row)
      EXPECT_EQ(order.start_of(batch, row), windows.start_of(batch * 4 + row));
  }
}

TEST(BatchOrder, StretchesComeFirst) {
  const BatchOrder order(kTokens, {4, 16, true, 7, 1, kStretches}, "text");
  EXPECT_EQ(order.shape_of(0), (BatchShape{8, 4}));
  EXPECT_EQ(order.shape_of(3), (BatchShape{8, 4}));
  EXPECT_EQ(order.shape_of(4), (BatchShape{3, 8}));
  EXPECT_EQ(order.shape_of(8), (BatchShape{1, 16}));
  EXPECT_EQ(order.shape_of(9), (BatchShape{4, 16}));
  EXPECT_EQ(order.shape_of(1'000'000), (BatchShape{4, 16}));
}

/// 8 + 3 + 3 windows of the stretches, then 12 batches of 4: all 62 windows of an epoch at last.
TEST(BatchOrder, EachTokenOfAnEpochComesOnce) {
  for (const bool shuffle : {true, false}) {
    const BatchOrder order(kTokens, {4, 16, shuffle, 7, 1, kStretches}, "text");
    const std::int64_t windows = order.windows_per_epoch();
    ASSERT_GE(windows, 61);
    const auto tokens = tokens_in(order, 9 + (windows - 14) / 4);
    const std::set<std::int64_t> different(tokens.begin(), tokens.end());
    EXPECT_EQ(tokens.size(), different.size());
    EXPECT_GE(static_cast<std::int64_t>(tokens.size()), (windows - 3) * 16);
  }
}

TEST(BatchOrder, TheNextBatchGoesOnInAWindow) {
  const BatchOrder order(kTokens, {4, 16, true, 7, 1, kStretches}, "text");
  for (std::int64_t row = 0; row < 8; ++row) {
    for (std::int64_t batch = 0; batch < 3; ++batch)
      EXPECT_EQ(order.start_of(batch + 1, row), order.start_of(batch, row) + 4);
  }
}

TEST(BatchOrder, RefusesStretchesThatDoNotFit) {
  const auto refuses = [](BatchStretch stretch) {
    EXPECT_THROW(BatchOrder(kTokens, {4, 16, true, 7, 1, {stretch}}, "text"), Error);
  };
  refuses({4, {8, 5}});
  refuses({3, {8, 4}});
  refuses({4, {17, 4}});
  refuses({4, {0, 4}});
}

}  // namespace
}  // namespace hybrid_trainer
