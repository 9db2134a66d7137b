#include "src/distributed/ordered_sum.h"

#include <algorithm>
#include <numeric>

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

namespace {

bool are_halves(const SumNode& lower, const SumNode& upper) {
  return lower.level == upper.level && lower.index % 2 == 0 && upper.index == lower.index + 1;
}

std::vector<SumNode> nodes_of_rank(std::int64_t leaves, int rank, int ranks) {
  const Shard range = leaves_of(leaves, rank, ranks);
  return nodes_of(range.first, range.last);
}

Tensor flat(const Tensor& tensor) { return tensor.view({tensor.elements()}); }

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

std::vector<SumNode> nodes_of(std::int64_t first, std::int64_t last) {
  std::vector<SumNode> nodes;
  while (first < last) {
    SumNode node{0, first};
    while (node.index % 2 == 0 && (node.index + 2) << node.level <= last)
      node = {node.level + 1, node.index / 2};
    nodes.push_back(node);
    first = node.last();
  }
  return nodes;
}

Shard leaves_of(std::int64_t leaves, int rank, int ranks) {
  return {leaves * rank / ranks, leaves * (rank + 1) / ranks};
}

void OrderedSum::merge_last(const Stream& stream) {
  const Tensor& lower = values_[values_.size() - 2];
  kernels::add(lower, lower, values_.back(), stream);
  values_.pop_back();
  nodes_.pop_back();
}

void OrderedSum::add(const SumNode& node, Tensor values, const Stream& stream) {
  if (!nodes_.empty()) {
    require(node.first() == nodes_.back().last(),
            "the nodes of an ordered sum must not skip a leaf");
    if (values.elements() != values_.back().elements())
      throw ShapeMismatch(concat("an ordered sum of ", values_.back().elements(),
                                 " elements got a node of ", values.elements()));
  }
  nodes_.push_back(node);
  values_.push_back(flat(values));
  while (nodes_.size() > 1 && are_halves(nodes_[nodes_.size() - 2], nodes_.back())) {
    merge_last(stream);
    nodes_.back() = {nodes_.back().level + 1, nodes_.back().index / 2};
  }
}

Tensor OrderedSum::take_total(const Stream& stream) {
  while (nodes_.size() > 1) merge_last(stream);
  Tensor total = values_.empty() ? Tensor{} : values_.front();
  nodes_.clear();
  values_.clear();
  return total;
}

int max_partial_sums(std::int64_t leaves) {
  int most = 0;
  for (std::int64_t before = 0; before < leaves; ++before)
    most = std::max(most, std::popcount(static_cast<std::uint64_t>(before)));
  return most;
}

std::vector<Shard> equal_shards(std::int64_t elements, int ranks) {
  std::vector<Shard> shards;
  for (int rank = 0; rank < ranks; ++rank) shards.push_back(shard_of(elements, rank, ranks));
  return shards;
}

OrderedReduction::OrderedReduction(std::vector<Shard> shards, OrderedSum mine, std::int64_t leaves,
                                   const Communicator& ranks, const Stream& stream)
    : shards_(std::move(shards)), mine_(std::move(mine)) {
  std::size_t rounds = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    nodes_.push_back(nodes_of_rank(leaves, rank, ranks.size()));
    rounds = std::max(rounds, nodes_.back().size());
  }
  require(mine_.nodes() == nodes_[static_cast<std::size_t>(ranks.rank())],
          "each rank of an ordered sum must have its own leaves");
  for (std::size_t round = 0; round < rounds; ++round)
    rounds_.push_back(make_round(round, ranks, stream));
}

std::int64_t OrderedReduction::elements_of(int rank) const {
  return shards_[static_cast<std::size_t>(rank)].elements();
}

OrderedReduction::Round OrderedReduction::make_round(std::size_t round, const Communicator& ranks,
                                                     const Stream& stream) const {
  Round made;
  const bool sends = round < mine_.nodes().size();
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const bool receives = round < nodes_[static_cast<std::size_t>(rank)].size();
    made.send_counts.push_back(sends ? elements_of(rank) : 0);
    made.receive_counts.push_back(receives ? elements_of(ranks.rank()) : 0);
  }
  const auto memory = [&](std::int64_t elements) {
    return Tensor::empty({elements}, DType::kF32, MemoryKind::kWorkspace, stream);
  };
  made.received = memory(sum_of(made.receive_counts));
  made.sent = sends ? mine_.values(round) : memory(0);
  return made;
}

void OrderedReduction::run(const Tensor& shard, Communicator& ranks, const Stream& stream) {
  for (const Round& round : rounds_)
    ranks.all_to_all(round.received, round.receive_counts, round.sent, round.send_counts, stream);
  OrderedSum sum;
  std::vector<std::int64_t> next(rounds_.size());  // offset in each round's received elements
  for (const auto& nodes : nodes_) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const std::int64_t first = next[i];
      next[i] += elements_of(ranks.rank());
      sum.add(nodes[i], rounds_[i].received.rows(first, next[i]), stream);
    }
  }
  const Tensor total = sum.take_total(stream);
  if (shard.elements() > 0) copy(flat(shard), total, stream);
}

}  // namespace hybrid_trainer
