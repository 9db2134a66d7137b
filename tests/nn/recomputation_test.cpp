#include "hybrid_trainer/nn/residual_block.h"

#include <gtest/gtest.h>

namespace hybrid_trainer::testing {
namespace {

/// GPT-2's shape: 16 numbers of its width a token, of which 4 are activations, 2 norms' outputs, 1
/// attention's, and 1 is the block's input.
constexpr BlockKept kBlock{16, 12, 10, 9, 1};
constexpr std::array kBlocks{kBlock, kBlock, kBlock, kBlock};
constexpr double kAll = 15;

std::size_t whole_blocks(const Recomputation& again) {
  std::size_t count = 0;
  while (count < 4 && again.whole(count)) ++count;
  return count;
}

TEST(Recomputation, TakesTheCheapestFirstUpToTheShare) {
  const auto level = [](double share, std::size_t block) {
    return Recomputation(kBlocks, share).rebuild(block);
  };
  EXPECT_EQ(level(0, 0), Rebuild::kNothing);
  EXPECT_EQ(level(1 / kAll, 0), Rebuild::kActivated) << "one block's";
  EXPECT_EQ(level(1 / kAll, 1), Rebuild::kNothing);
  EXPECT_EQ(level(4 / kAll, 3), Rebuild::kActivated);
  EXPECT_EQ(level(5 / kAll, 1), Rebuild::kNormalized);
  EXPECT_EQ(level(5 / kAll, 2), Rebuild::kActivated);
  EXPECT_EQ(level(7 / kAll, 3), Rebuild::kAttended);
}

TEST(Recomputation, TakesWholeBlocksLast) {
  const auto whole = [](double share) { return whole_blocks(Recomputation(kBlocks, share)); };
  EXPECT_EQ(whole(7 / kAll), 0u);
  EXPECT_EQ(whole(9 / kAll), 1u);
  EXPECT_EQ(whole(0.999), 4u);
  EXPECT_EQ(whole(1), 4u);
}

/// What the first two keep is all that is wanted; of the second kind's levels only two save anything.
TEST(Recomputation, CountsWhatEachBlockKeeps) {
  constexpr BlockKept kOther{7, 7, 5, 5, 1};
  constexpr std::array kMixed{kOther, kBlock, kOther, kBlock};
  const auto level = [&](double numbers, std::size_t block) {
    return Recomputation(kMixed, numbers / 42).rebuild(block);
  };
  EXPECT_EQ(level(4, 1), Rebuild::kActivated) << "the first saves nothing there";
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
