#include "hybrid_trainer/data/batch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::vector<std::int64_t> starts_of_epoch(const WindowOrder& order, std::int64_t epoch) {
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < order.windows_per_epoch(); ++i) {
    starts.push_back(order.start_of(epoch * order.windows_per_epoch() + i));
  }
  return starts;
}

TEST(WindowOrder, EveryWindowComesOnceInAnEpoch) {
  for (const std::int64_t tokens : {11, 19, 20, 21, 30, 99, 1000, 12345}) {
    const WindowOrder order(tokens, {4, 10, true, 7}, "text");
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      auto starts = starts_of_epoch(order, epoch);
      std::ranges::sort(starts);
      EXPECT_GE(starts.front(), 0);
      EXPECT_LT(starts.front(), 10);
      EXPECT_LE(starts.back() + 10, tokens - 1);  // the last target is in the text
      for (std::size_t i = 1; i < starts.size(); ++i) EXPECT_EQ(starts[i] - starts[i - 1], 10);
    }
  }
}

TEST(WindowOrder, WithoutShuffleGoesFromStartToEnd) {
  const WindowOrder order(101, {4, 10, false, 7}, "text");
  EXPECT_EQ(order.windows_per_epoch(), 10);
  const std::vector<std::int64_t> wanted{0, 10, 20, 30, 40, 50, 60, 70, 80, 90};
  EXPECT_EQ(starts_of_epoch(order, 0), wanted);
  EXPECT_EQ(starts_of_epoch(order, 3), wanted);
}

TEST(WindowOrder, GoesOnInEachRow) {
  BatchSettings settings{3, 10, true, 7};
  settings.goes_on = true;
  const WindowOrder order(115, settings, "text");  // 11 windows, of which 2 are left over
  EXPECT_EQ(order.windows_per_epoch(), 9);
  const std::vector<std::int64_t> wanted{0, 30, 60, 10, 40, 70, 20, 50, 80};
  EXPECT_EQ(starts_of_epoch(order, 0), wanted);
  EXPECT_EQ(starts_of_epoch(order, 2), wanted);
  EXPECT_THROW(WindowOrder(30, settings, "text"), DataError);
}

TEST(WindowOrder, SeedsAndEpochsDiffer) {
  const WindowOrder one(10000, {4, 10, true, 1}, "text");
  const WindowOrder two(10000, {4, 10, true, 2}, "text");
  EXPECT_EQ(starts_of_epoch(one, 0), starts_of_epoch(one, 0));
  EXPECT_NE(starts_of_epoch(one, 0), starts_of_epoch(one, 1));
  EXPECT_NE(starts_of_epoch(one, 0), starts_of_epoch(two, 0));
  std::set<std::int64_t> offsets;
  for (std::int64_t epoch = 0; epoch < 50; ++epoch) {
    offsets.insert(std::ranges::min(starts_of_epoch(one, epoch)));
  }
  EXPECT_EQ(offsets.size(), 10u);
}

TEST(WindowOrder, PlacesAreWellMixed) {
  // Mean distance of window i from place i: a third of the windows in a random order.
  const WindowOrder order(100'001, {4, 10, true, 3}, "text");
  double distance = 0;
  const auto starts = starts_of_epoch(order, 0);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    distance += std::abs(static_cast<double>(starts[i]) / 10 - static_cast<double>(i));
  }
  const auto windows = static_cast<double>(starts.size());
  EXPECT_NEAR(distance / windows / windows, 1.0 / 3, 0.01);
}

TEST(WindowOrder, TextShorterThanASequenceIsRefused) {
  WindowOrder(11, {4, 10, true, 0}, "text");
  expect_words(message_of<DataError>([] {
                 WindowOrder(10, {4, 10, true, 0}, "my text");
               }),
               {"my text", "10 tokens", "11"});
}

}  // namespace
}  // namespace hybrid_trainer
