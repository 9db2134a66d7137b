#include <gtest/gtest.h>

#include "tests/distributed/leaves.h"

namespace hybrid_trainer {
namespace {

using testing::leaf_tensor;
using testing::ordered_all_reduce;
using testing::sum_of_leaves;
using testing::tree_sum;

class OrderedAllReduce : public ::testing::TestWithParam<testing::RankCase> {};

TEST_P(OrderedAllReduce, MatchesSingleRank) {
  for (std::int64_t leaves = 1; leaves <= 8; ++leaves) {
    for (const std::int64_t elements : {1, 3, 64, 1021}) {
      GetParam().run([&](Communicator& ranks, const Stream& stream) {
        OrderedSum mine =
            sum_of_leaves(leaves_of(leaves, ranks.rank(), ranks.size()), elements, stream);
        const Tensor total = leaf_tensor(99, elements, stream);
        ordered_all_reduce(total, std::move(mine), leaves, ranks, stream);
        EXPECT_TRUE(mine.nodes().empty());
        const std::vector<float> got = testing::floats_of(total, stream);
        for (std::int64_t i = 0; i < elements; ++i)
          ASSERT_EQ(got[static_cast<std::size_t>(i)], tree_sum(0, leaves, i))
              << leaves << ", " << i;
      });
    }
  }
}

/// A rank sends its nodes and its shard once to each other rank.
TEST_P(OrderedAllReduce, SendsRingTrafficForWholeNodes) {
  GetParam().run([&](Communicator& ranks, const Stream& stream) {
    const std::int64_t leaves = 2 * ranks.size(), elements = 60;
    OrderedSum mine =
        sum_of_leaves(leaves_of(leaves, ranks.rank(), ranks.size()), elements, stream);
    ASSERT_EQ(mine.nodes().size(), 1u);
    const std::uint64_t before = ranks.use().bytes_sent;
    ordered_all_reduce(leaf_tensor(0, elements, stream), std::move(mine), leaves, ranks, stream);
    const auto size = static_cast<std::uint64_t>(ranks.size());
    EXPECT_EQ(ranks.use().bytes_sent - before, 2 * 4 * 60 * (size - 1) / size);
  });
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OrderedAllReduce);
INSTANTIATE_TEST_SUITE_P(All, OrderedAllReduce, ::testing::ValuesIn(testing::rank_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hybrid_trainer
