#include "hybrid_trainer/distributed/ordered_sum.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/distributed/single_communicator.h"
#include "tests/distributed/rank_suite.h"

namespace hybrid_trainer {
namespace {

using testing::floats_of;
using testing::rank_stream;

/// Values whose sum depends on the order of the terms.
float leaf_value(std::int64_t leaf, std::int64_t element) {
  const auto mixed = static_cast<std::uint64_t>(leaf * 7919 + element * 104729 + 12345);
  const auto scrambled = static_cast<std::uint32_t>(mixed * 2654435761u);
  return (static_cast<float>(scrambled) / 4294967296.0f - 0.5f) *
         static_cast<float>(1 << (scrambled % 13));
}

Tensor leaf_tensor(std::int64_t leaf, std::int64_t elements, const Stream& stream) {
  const Tensor tensor = Tensor::empty({elements}, DType::kF32, MemoryKind::kWorkspace, stream);
  for (std::int64_t i = 0; i < elements; ++i) tensor.data<float>()[i] = leaf_value(leaf, i);
  return tensor;
}

/// The definition: the tree over [first, last), its largest power of two of leaves on the left.
float tree_sum(std::int64_t first, std::int64_t last, std::int64_t element) {
  if (last - first == 1) return leaf_value(first, element);
  std::int64_t left = 1;
  while (2 * left < last - first) left *= 2;
  return tree_sum(first, first + left, element) + tree_sum(first + left, last, element);
}

OrderedSum sum_of_leaves(Shard leaves, std::int64_t elements, const Stream& stream) {
  OrderedSum sum;
  for (std::int64_t leaf = leaves.first; leaf < leaves.last; ++leaf)
    sum.add({0, leaf}, leaf_tensor(leaf, elements, stream), stream);
  return sum;
}

/// Of (elements) tensors: what each rank sums is sent to the others.
void ordered_all_reduce(const Tensor& total, OrderedSum mine, std::int64_t leaves,
                        Communicator& ranks, const Stream& stream) {
  std::vector<Shard> shards = equal_shards(total.elements(), ranks.size());
  const Shard part = shards[static_cast<std::size_t>(ranks.rank())];
  const Tensor own = total.rows(part.first, part.last);
  OrderedReduction(std::move(shards), std::move(mine), leaves, ranks, stream)
      .run(own, ranks, stream);
  ranks.all_gather(total, own, stream);
}

TEST(OrderedSum, IsTheTreeOfItsLeaves) {
  const Stream stream = rank_stream();
  bool order_matters = false;
  for (std::int64_t leaves = 1; leaves <= 19; ++leaves) {
    OrderedSum sum = sum_of_leaves({0, leaves}, 5, stream);
    EXPECT_EQ(sum.nodes(), nodes_of(0, leaves));
    const std::vector<float> got = floats_of(sum.take_total(stream));
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

TEST(OrderedSum, NodesOfAPartAreTheLargestInside) {
  EXPECT_EQ(nodes_of(0, 8), (std::vector<SumNode>{{3, 0}}));
  EXPECT_EQ(nodes_of(3, 8), (std::vector<SumNode>{{0, 3}, {2, 1}}));
  EXPECT_EQ(nodes_of(0, 7), (std::vector<SumNode>{{2, 0}, {1, 2}, {0, 6}}));
  EXPECT_EQ(nodes_of(5, 5), std::vector<SumNode>{});
}

TEST(OrderedSum, RefusesLeavesLeftOutAndOtherSizes) {
  const Stream stream = rank_stream();
  OrderedSum sum = sum_of_leaves({0, 2}, 5, stream);
  EXPECT_THROW(sum.add({0, 3}, leaf_tensor(3, 5, stream), stream), Error);
  EXPECT_THROW(sum.add({0, 2}, leaf_tensor(2, 4, stream), stream), ShapeMismatch);
  SingleCommunicator alone;
  const Tensor total = leaf_tensor(0, 5, stream);
  EXPECT_THROW(ordered_all_reduce(total, sum, 3, alone, stream), Error);
}

class OrderedAllReduce : public ::testing::TestWithParam<testing::RankCase> {};

TEST_P(OrderedAllReduce, HasTheBitsOfOneRank) {
  for (std::int64_t leaves = 1; leaves <= 8; ++leaves) {
    for (const std::int64_t elements : {1, 3, 64, 1021}) {
      GetParam().run([&](Communicator& ranks) {
        const Stream stream = rank_stream();
        OrderedSum mine =
            sum_of_leaves(leaves_of(leaves, ranks.rank(), ranks.size()), elements, stream);
        const Tensor total = leaf_tensor(99, elements, stream);
        ordered_all_reduce(total, std::move(mine), leaves, ranks, stream);
        EXPECT_TRUE(mine.nodes().empty());
        for (std::int64_t i = 0; i < elements; ++i)
          ASSERT_EQ(total.data<float>()[i], tree_sum(0, leaves, i)) << leaves << " leaves, " << i;
      });
    }
  }
}

/// A rank sends its nodes and its shard once, to each other rank.
TEST_P(OrderedAllReduce, SendsAsManyBytesAsARingWhereNodesAreWhole) {
  GetParam().run([&](Communicator& ranks) {
    const Stream stream = rank_stream();
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

INSTANTIATE_TEST_SUITE_P(All, OrderedAllReduce, ::testing::ValuesIn(testing::rank_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hybrid_trainer
