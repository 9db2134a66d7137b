#include "hybrid_trainer/kernels/attention.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace hybrid_trainer::kernels {
namespace {

constexpr std::int32_t kBlocks = 41;

std::vector<std::int32_t> seen(const BlockPattern& pattern, std::int32_t head, std::int32_t i) {
  std::vector<std::int32_t> blocks;
  for (std::int32_t j = pattern.next_visible(head, i, 0); j != BlockPattern::kNone;
       j = pattern.next_visible(head, i, j + 1))
    blocks.push_back(j);
  return blocks;
}

TEST(BlockPattern, SeesLocalGlobalAndRandomBlocks) {
  for (const BlockPattern& pattern :
       {BlockPattern{8, 1}, BlockPattern{8, 3, 0, 2}, BlockPattern{8, 2, 5, 1},
        BlockPattern{8, 1, 1, 7, 3}, BlockPattern{8, 50}, BlockPattern{8, 1, 50},
        BlockPattern{8, 1, 0, 50}}) {
    for (std::int32_t i = 0; i < kBlocks; ++i) {
      std::int32_t others = 0;
      const std::vector<std::int32_t> blocks = seen(pattern, 2, i);
      const std::set<std::int32_t> all(blocks.begin(), blocks.end());
      EXPECT_EQ(std::ssize(all), std::ssize(blocks));
      for (std::int32_t j = 0; j <= kBlocks; ++j) {
        const bool fixed = j <= i && (j > i - pattern.local || j < pattern.global);
        EXPECT_EQ(pattern.attends(2, i, j), all.contains(j)) << i << " " << j;
        EXPECT_TRUE(!fixed || all.contains(j)) << i << " " << j;
        if (!fixed && all.contains(j)) ++others;
        EXPECT_TRUE(j <= i || !all.contains(j));
      }
      const std::int32_t fixed = pattern.visible_blocks(i) - others;
      EXPECT_EQ(others, std::min(pattern.random, i + 1 - fixed)) << i;
      EXPECT_EQ(pattern.visible_blocks(i), std::ssize(blocks));
    }
  }
}

TEST(BlockPattern, DrawsBlocksUniformlyByKeyAndHead) {
  const auto others = [](std::uint32_t key, std::int32_t head) {
    std::vector<std::vector<std::int32_t>> all;
    for (std::int32_t i = 0; i < kBlocks; ++i) all.push_back(seen({8, 1, 0, 2, key}, head, i));
    return all;
  };
  EXPECT_EQ(others(0, 0), others(0, 0));
  EXPECT_NE(others(0, 0), others(1, 0));
  EXPECT_NE(others(0, 0), others(0, 1));
  std::vector<int> drawn(kBlocks);  // each of 38 blocks with probability 2/38
  for (std::int32_t head = 0; head < 1900; ++head)
    for (const std::int32_t j : seen({8, 2, 1, 2}, head, kBlocks - 1))
      ++drawn[static_cast<std::size_t>(j)];
  for (std::size_t j = 1; j < kBlocks - 2; ++j) EXPECT_NEAR(drawn[j], 100, 40) << j;
}

TEST(BlockPattern, CountsKeysVisibleToQuery) {
  AttentionSpec spec(2);
  spec.pattern = {10, 2, 1, 1};
  EXPECT_DOUBLE_EQ(visible_keys(spec, 10), 5);
  EXPECT_DOUBLE_EQ(visible_keys(spec, 20), (10 * 5 + 10 * 15) / 20.0);
  // All but the first three query blocks see four: own, previous, first and a random one.
  EXPECT_DOUBLE_EQ(visible_keys(spec, 95), (10 * (5 + 15 + 25) + 60 * 35 + 5 * 32.5) / 95);
  spec.window = 8;
  EXPECT_LE(visible_keys(spec, 95), 8);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
