#include "hybrid_trainer/nn/residual_block.h"

#include <gtest/gtest.h>

namespace hybrid_trainer::testing {
namespace {

/// GPT-2's block keeps 16 numbers per token and channel: 4 activations, 2 outputs of norms, 1 of
/// attention, 1 input of the block, and 8 others.
constexpr BlockKept kBlock{16, 12, 10, 9, 1};
constexpr std::array kBlocks{kBlock, kBlock, kBlock, kBlock};
constexpr double kAll = 15;

std::size_t whole_blocks(const Recomputation& again) {
  std::size_t count = 0;
  while (count < 4 && again.whole(count)) ++count;
  return count;
}

TEST(Recomputation, SelectsCheapestFirstUpToShare) {
  const auto level = [](double share, std::size_t block) {
    return Recomputation(kBlocks, share).rebuild(block);
  };
  EXPECT_EQ(level(0, 0), Rebuild::kNothing);
  EXPECT_EQ(level(1 / kAll, 0), Rebuild::kActivated) << "only one block";
  EXPECT_EQ(level(1 / kAll, 1), Rebuild::kNothing);
  EXPECT_EQ(level(4 / kAll, 3), Rebuild::kActivated);
  EXPECT_EQ(level(5 / kAll, 1), Rebuild::kNormalized);
  EXPECT_EQ(level(5 / kAll, 2), Rebuild::kActivated);
  EXPECT_EQ(level(7 / kAll, 3), Rebuild::kAttended);
}

TEST(Recomputation, SelectsWholeBlocksLast) {
  const auto whole = [](double share) { return whole_blocks(Recomputation(kBlocks, share)); };
  EXPECT_EQ(whole(7 / kAll), 0u);
  EXPECT_EQ(whole(9 / kAll), 1u);
  EXPECT_EQ(whole(0.999), 4u);
  EXPECT_EQ(whole(1), 4u);
}

/// Counts relative to everything but block inputs. Only two levels of the second kind save any.
TEST(Recomputation, WeighsBlocksByKeptActivations) {
  constexpr BlockKept kOther{7, 7, 5, 5, 1};
  constexpr std::array kMixed{kOther, kBlock, kOther, kBlock};
  const auto level = [&](double numbers, std::size_t block) {
    return Recomputation(kMixed, numbers / 42).rebuild(block);
  };
  EXPECT_EQ(level(4, 1), Rebuild::kActivated) << "the first block saves nothing at this level";
  EXPECT_EQ(level(4, 2), Rebuild::kNothing);
  EXPECT_EQ(level(8, 3), Rebuild::kActivated);
  EXPECT_EQ(level(10, 0), Rebuild::kNormalized);
  EXPECT_EQ(level(10, 1), Rebuild::kActivated);
  EXPECT_EQ(whole_blocks({kMixed, 18 / 42.0}), 0u);
  EXPECT_EQ(whole_blocks({kMixed, 22 / 42.0}), 1u);
  EXPECT_EQ(whole_blocks({kMixed, 30 / 42.0}), 2u);
}

}  // namespace
}  // namespace hybrid_trainer::testing
