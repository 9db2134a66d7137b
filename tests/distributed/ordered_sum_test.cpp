#include "src/distributed/ordered_sum.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/random.h"
#include "src/distributed/single_communicator.h"
#include "tests/distributed/leaves.h"

namespace hybrid_trainer {
namespace {

using testing::floats_of;
using testing::leaf_tensor;
using testing::leaf_value;
using testing::ordered_all_reduce;
using testing::rank_stream;
using testing::sum_of_leaves;
using testing::tree_sum;

TEST(OrderedSum, SumsLeavesAsTree) {
  const Stream stream = rank_stream();
  bool order_matters = false;
  for (std::int64_t leaves = 1; leaves <= 19; ++leaves) {
    OrderedSum sum = sum_of_leaves({0, leaves}, 5, stream);
    EXPECT_EQ(sum.nodes(), nodes_of(0, leaves));
    const std::vector<float> got = floats_of(sum.take_total(stream), stream);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto element = static_cast<std::int64_t>(i);
      EXPECT_EQ(got[i], tree_sum(0, leaves, element)) << leaves << " leaves";
      float in_line = 0;
      for (std::int64_t leaf = 0; leaf < leaves; ++leaf) in_line += leaf_value(leaf, element);
      order_matters |= in_line != got[i];
    }
  }
  EXPECT_TRUE(order_matters);
}

TEST(OrderedSum, NodesAreLargestInRange) {
  EXPECT_EQ(nodes_of(0, 8), (std::vector<SumNode>{{3, 0}}));
  EXPECT_EQ(nodes_of(3, 8), (std::vector<SumNode>{{0, 3}, {2, 1}}));
  EXPECT_EQ(nodes_of(0, 7), (std::vector<SumNode>{{2, 0}, {1, 2}, {0, 6}}));
  EXPECT_EQ(nodes_of(5, 5), std::vector<SumNode>{});
}

TEST(OrderedSum, RejectsMissingLeavesAndOtherSizes) {
  const Stream stream = rank_stream();
  OrderedSum sum = sum_of_leaves({0, 2}, 5, stream);
  EXPECT_THROW(sum.add({0, 3}, leaf_tensor(3, 5, stream), stream), Error);
  EXPECT_THROW(sum.add({0, 2}, leaf_tensor(2, 4, stream), stream), ShapeMismatch);
  SingleCommunicator alone;
  const Tensor total = leaf_tensor(0, 5, stream);
  EXPECT_THROW(ordered_all_reduce(total, sum, 3, alone, stream), Error);
}

}  // namespace
}  // namespace hybrid_trainer
