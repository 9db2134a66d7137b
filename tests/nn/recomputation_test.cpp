#include "hybrid_trainer/nn/recomputation.h"

#include <gtest/gtest.h>

namespace hybrid_trainer::testing {
namespace {

/// GPT-2's shape: 16 numbers of its width a token, of which 4 are activations, 2 norms' outputs, 1
/// attention's, and 1 is the block's input.
constexpr BlockSpec kBlock{.width = 64, .heads = 4, .head_size = 16, .inner_width = 256};
constexpr double kAll = 15;

TEST(Recomputation, TakesTheCheapestFirstUpToTheShare) {
  const auto level = [](double share, std::size_t block) {
    return Recomputation(kBlock, 4, share, Rebuild::kNothing).rebuild(block);
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
  const auto whole = [](double share) {
    return Recomputation(kBlock, 4, share, Rebuild::kNothing).whole_blocks();
  };
  EXPECT_EQ(whole(7 / kAll), 0u);
  EXPECT_EQ(whole(9 / kAll), 1u);
  EXPECT_EQ(whole(0.999), 4u);
  EXPECT_EQ(whole(1), 4u);
}

TEST(Recomputation, CountsOnlyWhatIsSavedBeyondTheLeast) {
  const Recomputation none(kBlock, 4, 0, Rebuild::kActivated);
  EXPECT_EQ(none.rebuild(3), Rebuild::kActivated);
  const Recomputation some(kBlock, 4, 2 / 11.0, Rebuild::kActivated);
  EXPECT_EQ(some.rebuild(3), Rebuild::kNormalized);
  EXPECT_EQ(some.whole_blocks(), 0u);
  const Recomputation all(kBlock, 4, 1, Rebuild::kActivated);
  EXPECT_TRUE(all.whole(3));
  EXPECT_EQ(all.rebuild(3), Rebuild::kActivated);
}

}  // namespace
}  // namespace hybrid_trainer::testing
