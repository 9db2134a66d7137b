#pragma once

#include "src/distributed/ordered_sum.h"
#include "tests/distributed/rank_suite.h"

namespace hybrid_trainer::testing {

/// Values whose sum depends on the order of addition.
inline float leaf_value(std::int64_t leaf, std::int64_t element) {
  const auto mixed = static_cast<std::uint64_t>(leaf * 7919 + element * 104729 + 12345);
  const auto scrambled = static_cast<std::uint32_t>(mixed * 2654435761u);
  return (static_cast<float>(scrambled) / 4294967296.0f - 0.5f) *
         static_cast<float>(1 << (scrambled % 13));
}

inline Tensor leaf_tensor(std::int64_t leaf, std::int64_t elements, const Stream& stream) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < elements; ++i) values.push_back(leaf_value(leaf, i));
  return tensor_of(values, stream);
}

/// Reference implementation: the sum tree over [first, last), whose left subtree has the largest
/// possible power of two of leaves.
inline float tree_sum(std::int64_t first, std::int64_t last, std::int64_t element) {
  if (last - first == 1) return leaf_value(first, element);
  std::int64_t left = 1;
  while (2 * left < last - first) left *= 2;
  return tree_sum(first, first + left, element) + tree_sum(first + left, last, element);
}

inline OrderedSum sum_of_leaves(Shard leaves, std::int64_t elements, const Stream& stream) {
  OrderedSum sum;
  for (std::int64_t leaf = leaves.first; leaf < leaves.last; ++leaf)
    sum.add({0, leaf}, leaf_tensor(leaf, elements, stream), stream);
  return sum;
}

/// Computes the sum of all ranks' (elements) tensors: each reduces one shard and gathers the rest.
inline void ordered_all_reduce(const Tensor& total, OrderedSum mine, std::int64_t leaves,
                               Communicator& ranks, const Stream& stream) {
  std::vector<Shard> shards = equal_shards(total.elements(), ranks.size());
  const Shard part = shards[static_cast<std::size_t>(ranks.rank())];
  const Tensor own = total.rows(part.first, part.last);
  OrderedReduction(std::move(shards), std::move(mine), leaves, ranks, stream)
      .run(own, ranks, stream);
  ranks.all_gather(total, own, stream);
}

}  // namespace hybrid_trainer::testing
