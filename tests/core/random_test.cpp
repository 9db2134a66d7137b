#include "hybrid_trainer/core/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hybrid_trainer {
namespace {

using Words = std::array<std::uint32_t, 4>;

/// A key with the given Philox counter and key words; the upper halves of step and tensor are 0.
RandomKey key_of(const std::array<std::uint32_t, 2>& key, std::uint32_t c2, std::uint32_t c3) {
  return {(std::uint64_t{key[1]} << 32) | key[0], c2, c3};
}

// Source: Salmon et al., Random123, tests/kat_vectors, lines "philox4x32 10".
TEST(Philox, MatchesPublishedTestVectors) {
  EXPECT_EQ(philox(key_of({0, 0}, 0, 0), 0),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(key_of({0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff), ~std::uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(key_of({0xa4093822, 0x299f31d0}, 0x13198a2e, 0x03707344), 0x85a308d3243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DependsOnEveryPartOfKey) {
  const RandomKey key{1, 2, 3};
  const std::uint64_t high = std::uint64_t{1} << 32;
  const Words words = philox(key, 5);
  EXPECT_NE(philox(key, 6), words);
  EXPECT_NE(philox(key, 5 + high), words);
  for (const RandomKey& other :
       {RandomKey{2, 2, 3}, RandomKey{1, 3, 3}, RandomKey{1, 2, 4}, RandomKey{1 + high, 2, 3},
        RandomKey{1, 2 + high, 3}, RandomKey{1, 2, 3 + high}}) {
    EXPECT_NE(philox(other, 5), words) << other.seed << " " << other.step << " " << other.tensor;
  }
}

TEST(RandomWord, TakesWordsFromConsecutiveBlocks) {
  const RandomKey key{7, 8, 9};
  EXPECT_EQ(random_word(key, 6), philox(key, 1)[2]);
  EXPECT_EQ(random_word(key, 6), random_word(key, 6));
}

TEST(ToUnitFloat, StaysBelowOne) {
  EXPECT_EQ(to_unit_float(0), 0.0f);
  EXPECT_LT(to_unit_float(0xffffffff), 1.0f);
  EXPECT_EQ(to_unit_float(0x80000000), 0.5f);
}

TEST(RandomBelow, IsUniformOverRange) {
  constexpr int kDraws = 70000, kBound = 7;
  std::array<int, kBound> counts{};
  for (std::uint64_t i = 0; i < kDraws; ++i) ++counts.at(random_below({3, 0, 0}, i, kBound));
  double chi_squared = 0;
  for (const int count : counts)
    chi_squared += std::pow(count - kDraws / kBound, 2) / (kDraws / kBound);
  EXPECT_LT(chi_squared, 22.5);  // 6 degrees of freedom: exceeded with probability 0.001
  EXPECT_EQ(random_below({3, 0, 0}, 1, 1), 0u);
}

TEST(RandomNormal, MomentsMatchStandardNormal) {
  constexpr int kDraws = 100000;
  double sums[4] = {};
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double value = random_normal({11, 2, 5}, i);
    ASSERT_TRUE(std::isfinite(value));
    double power = 1;
    for (double& sum : sums) sum += (power *= value) / kDraws;
  }
  EXPECT_NEAR(sums[0], 0, 0.015);
  EXPECT_NEAR(sums[1], 1, 0.02);
  EXPECT_NEAR(sums[2], 0, 0.05);
  EXPECT_NEAR(sums[3], 3, 0.15);
}

}  // namespace
}  // namespace hybrid_trainer
