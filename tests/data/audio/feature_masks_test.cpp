#include "src/data/audio/log_mel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// Statistics of 4,000 masks of transformers' _compute_mask_indices: mean and standard deviation of
/// the number of masked positions, and the shares that cover the first, middle and last position.
struct MaskStatistics {
  std::int64_t length;
  AxisMasks masks;
  double mean, deviation, first, middle, last;
};

class FeatureMaskDistribution : public ::testing::TestWithParam<MaskStatistics> {};

TEST_P(FeatureMaskDistribution, MatchesTransformers) {
  constexpr int kDraws = 4000;
  const MaskStatistics wanted = GetParam();
  double sum = 0, squares = 0, first = 0, middle = 0, last = 0;
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    std::set<std::int64_t> covered;
    for (const std::int64_t start : mask_starts(wanted.length, wanted.masks, {1, 2, draw}))
      for (std::int64_t i = 0; i < wanted.masks.length; ++i) covered.insert(start + i);
    const auto places = static_cast<double>(covered.size());
    sum += places, squares += places * places;
    first += covered.contains(0), last += covered.contains(wanted.length - 1);
    middle += covered.contains(wanted.length / 2);
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, wanted.mean, 6 * wanted.deviation / std::sqrt(kDraws) + 1e-9);
  EXPECT_NEAR(std::sqrt(squares / kDraws - mean * mean), wanted.deviation,
              0.06 * wanted.deviation + 1e-9);
  const auto expect_share = [](double found, double share) {
    EXPECT_NEAR(found / kDraws, share, 6 * std::sqrt(share * (1 - share) / kDraws) + 1e-9);
  };
  expect_share(first, wanted.first);
  expect_share(middle, wanted.middle);
  expect_share(last, wanted.last);
}

INSTANTIATE_TEST_SUITE_P(
    Axes, FeatureMaskDistribution,
    ::testing::Values(MaskStatistics{3000, {.05, 10, 2}, 146.9363, 4.2434, .0065, .0510, .0032},
                      MaskStatistics{80, {.3, 10, 1}, 21.7595, 4.9155, .0315, .3095, .0330},
                      MaskStatistics{50, {.1, 8, 0}, 5.0680, 3.8548, .0150, .1235, .0130},
                      MaskStatistics{12, {.9, 10, 0}, 10, 0, .3307, 1, .3255},
                      MaskStatistics{100, {.02, 10, 2}, 19.0048, 2.3236, .0213, .2042, .0210}));

TEST(FeatureMasks, DependOnlyOnKey) {
  const AxisMasks masks{.05, 10, 2};
  const auto starts = mask_starts(3000, masks, {1, 2, 3});
  EXPECT_EQ(starts.size(), 15u);
  EXPECT_EQ(starts, mask_starts(3000, masks, {1, 2, 3}));
  for (const RandomKey& other : {RandomKey{2, 2, 3}, RandomKey{1, 3, 3}, RandomKey{1, 2, 4}})
    EXPECT_NE(starts, mask_starts(3000, masks, other));
}

TEST(FeatureMasks, AreEmptyForZeroShareOrShortAxis) {
  EXPECT_TRUE(mask_starts(3000, {0, 10, 2}, {}).empty());
  EXPECT_TRUE(mask_starts(9, {.5, 10, 2}, {}).empty());
  EXPECT_THROW(mask_starts(9, {.5, 0, 2}, {}), Error);
}

TEST(FeatureMasks, ZeroWholeFramesAndMelBands) {
  constexpr std::int64_t kFrames = 200, kMels = 16;
  std::vector<float> features(kFrames * kMels, 1.0f);
  const FeatureMasks masks{.frames = {.1, 5, 1}, .mels = {.2, 2, 1}};
  const RandomKey key{7, 1, 9};
  mask_features(features, kMels, masks, key);
  std::set<std::int64_t> frames, bands;
  for (std::int64_t i = 0; i < kFrames; ++i) {
    bool all = true;
    for (std::int64_t m = 0; m < kMels; ++m)
      all = all && features[static_cast<std::size_t>(i * kMels + m)] == 0;
    if (all) frames.insert(i);
  }
  for (std::int64_t m = 0; m < kMels; ++m) {
    bool all = true;
    for (std::int64_t i = 0; i < kFrames; ++i)
      all = all && features[static_cast<std::size_t>(i * kMels + m)] == 0;
    if (all) bands.insert(m);
  }
  std::set<std::int64_t> wanted;
  for (const std::int64_t start : mask_starts(kFrames, masks.frames, key))
    for (std::int64_t i = 0; i < 5; ++i) wanted.insert(start + i);
  EXPECT_EQ(frames, wanted);
  EXPECT_GE(bands.size(), 2u);
  EXPECT_LE(bands.size(), 4u);
  const auto zeros = std::count(features.begin(), features.end(), 0.0f);
  EXPECT_EQ(zeros, std::ssize(frames) * kMels + std::ssize(bands) * (kFrames - std::ssize(frames)))
      << "and leaves the rest unchanged";
}

}  // namespace
}  // namespace hybrid_trainer
