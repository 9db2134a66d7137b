#include "src/optim/exact_weights.h"

#include <gtest/gtest.h>

#include "tests/support/test_tensors.h"

namespace hybrid_trainer {
namespace {

std::vector<std::int64_t> cuts(const Shape& shape, std::int64_t most) {
  const Stream stream = testing::test_stream();
  return piece_rows(Parameter("w", shape, Role::kMatrix, stream), most);
}

using Rows = std::vector<std::int64_t>;

TEST(PieceRows, WeightThatFitsIsOnePiece) {
  EXPECT_EQ(cuts({10, 10}, 101), (Rows{0, 10}));
  EXPECT_EQ(cuts({10, 10}, 100), (Rows{0, 10}));
  EXPECT_EQ(cuts({10, 10}, 99), (Rows{0, 9, 10}));
}

TEST(PieceRows, HoldAtLeastOneRow) {
  EXPECT_EQ(cuts({3, 10}, 19), (Rows{0, 1, 2, 3}));
  EXPECT_EQ(cuts({3, 10}, 5), (Rows{0, 1, 2, 3}));
}

/// 512 rows of 4 bf16 elements are one page.
TEST(PieceRows, AlignToPagesIfAllowed) {
  EXPECT_EQ(cuts({1300, 4}, 4 * 1000), (Rows{0, 512, 1024, 1300}));
  EXPECT_EQ(cuts({1300, 4}, 4 * 1024), (Rows{0, 1024, 1300}));
  EXPECT_EQ(cuts({1300, 4}, 4 * 512), (Rows{0, 512, 1024, 1300}));
  EXPECT_EQ(cuts({1300, 4}, 4 * 500), (Rows{0, 500, 1000, 1300}));
}

}  // namespace
}  // namespace hybrid_trainer
