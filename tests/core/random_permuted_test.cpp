#include <gtest/gtest.h>

#include <set>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {
namespace {

TEST(RandomPermuted, VisitsEachIndexOnceInKeyedOrder) {
  for (const std::uint64_t count : {1u, 2u, 5u, 64u, 1000u}) {
    std::set<std::uint64_t> places;
    for (std::uint64_t i = 0; i < count; ++i) places.insert(random_permuted({1, 2, 3}, i, count));
    EXPECT_EQ(places.size(), count);
    EXPECT_LT(*places.rbegin(), count);
  }
  int same = 0;
  for (std::uint64_t i = 0; i < 1000; ++i)
    same += random_permuted({1, 2, 3}, i, 1000) == random_permuted({2, 2, 3}, i, 1000) ? 1 : 0;
  EXPECT_LT(same, 20);
}

}  // namespace
}  // namespace hybrid_trainer
