#include "src/core/block_store.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(FileRanges, AllocateSequentially) {
  FileRanges ranges;
  EXPECT_EQ(ranges.take(4), 0);
  EXPECT_EQ(ranges.take(8), 4);
  EXPECT_EQ(ranges.end(), 12);
}

TEST(FileRanges, UseSmallestSufficientGap) {
  FileRanges ranges;
  for (const off_t bytes : {6, 1, 3, 1, 4, 1}) ranges.take(bytes);  // at 0, 6, 7, 10, 11, 15
  ranges.give(0, 6);
  ranges.give(7, 3);
  ranges.give(11, 4);
  EXPECT_EQ(ranges.take(4), 11);
  EXPECT_EQ(ranges.take(2), 7);
  EXPECT_EQ(ranges.take(1), 9) << "the rest of a gap";
  EXPECT_EQ(ranges.take(7), 16) << "no gap is large enough";
  EXPECT_EQ(ranges.take(6), 0);
  EXPECT_EQ(ranges.end(), 23);
}

TEST(FileRanges, MergeAdjacentGaps) {
  for (const bool from_the_left : {true, false}) {
    FileRanges ranges;
    for (const off_t bytes : {2, 3, 4, 1}) ranges.take(bytes);  // at 0, 2, 5, 9
    ranges.give(from_the_left ? 0 : 5, from_the_left ? 2 : 4);
    ranges.give(from_the_left ? 5 : 0, from_the_left ? 4 : 2);
    ranges.give(2, 3);
    EXPECT_EQ(ranges.take(9), 0);
  }
}

TEST(FileRanges, EndAfterLastUsedRange) {
  FileRanges ranges;
  for (const off_t bytes : {2, 3, 4}) ranges.take(bytes);
  ranges.give(2, 3);
  EXPECT_EQ(ranges.end(), 9);
  ranges.give(5, 4);
  EXPECT_EQ(ranges.end(), 2);
  ranges.give(0, 2);
  EXPECT_EQ(ranges.end(), 0);
}

}  // namespace
}  // namespace hybrid_trainer
