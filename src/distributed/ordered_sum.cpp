#include "hybrid_trainer/distributed/ordered_sum.h"

#include <algorithm>
#include <bit>

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

/// One round of the exchange: what each rank sends of its node number `round`, where it has one.
struct ReceivedNodes {
  std::vector<std::int64_t> counts;  // of elements, by rank
  Tensor values;
};

/// `first_of`: where each rank's elements begin in the received tensor.
std::vector<std::int64_t> beginnings(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> first_of{0};
  for (const std::int64_t count : counts) first_of.push_back(first_of.back() + count);
  return first_of;
}

Tensor flat(const Tensor& tensor) { return tensor.view({tensor.elements()}); }

class NodeExchange {
 public:
  NodeExchange(const std::vector<Shard>& shards, std::int64_t leaves, Communicator& communicator)
      : shards_(shards), ranks_(communicator.size()), communicator_(communicator) {
    for (int rank = 0; rank < ranks_; ++rank) nodes_.push_back(nodes_of_rank(leaves, rank, ranks_));
  }

  const std::vector<SumNode>& nodes(int rank) const { return at(nodes_, rank); }

  /// Brings this rank's shard of everyone's nodes here.
  void receive(const OrderedSum& mine, const Stream& stream) {
    std::size_t rounds = 0;
    for (const auto& nodes : nodes_) rounds = std::max(rounds, nodes.size());
    for (std::size_t round = 0; round < rounds; ++round) receive_round(mine, round, stream);
  }

  /// Sums what was received, in the order of leaves.
  Tensor total(const Stream& stream) const {
    OrderedSum sum;
    for (int rank = 0; rank < ranks_; ++rank) {
      for (std::size_t i = 0; i < nodes(rank).size(); ++i) {
        const std::int64_t first = at(beginnings(received_[i].counts), rank);
        const std::int64_t count = at(received_[i].counts, rank);
        sum.add(nodes(rank)[i], received_[i].values.rows(first, first + count), stream);
      }
    }
    return sum.take_total(stream);
  }

 private:
  template <class T>
  static const T& at(const std::vector<T>& values, int rank) {
    return values[static_cast<std::size_t>(rank)];
  }

  void receive_round(const OrderedSum& mine, std::size_t round, const Stream& stream) {
    const std::int64_t shard = at(shards_, communicator_.rank()).elements();
    const bool sends = round < mine.nodes().size();
    std::vector<std::int64_t> send_counts;
    ReceivedNodes received;
    for (int rank = 0; rank < ranks_; ++rank) {
      send_counts.push_back(sends ? at(shards_, rank).elements() : 0);
      received.counts.push_back(round < nodes(rank).size() ? shard : 0);
    }
    received.values = Tensor::empty({beginnings(received.counts).back()}, DType::kF32,
                                    MemoryKind::kWorkspace, stream);
    const Tensor sent = sends ? mine.values(round)
                              : Tensor::empty({0}, DType::kF32, MemoryKind::kWorkspace, stream);
    communicator_.all_to_all(received.values, received.counts, sent, send_counts, stream);
    received_.push_back(std::move(received));
  }

  const std::vector<Shard>& shards_;
  const int ranks_;
  Communicator& communicator_;
  std::vector<std::vector<SumNode>> nodes_;  // by rank
  std::vector<ReceivedNodes> received_;
};

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
    require(node.first() == nodes_.back().last(), "nodes of an ordered sum leave no leaf out");
    if (values.elements() != values_.back().elements()) {
      throw ShapeMismatch(concat("an ordered sum of ", values_.back().elements(),
                                 " elements got a node of ", values.elements()));
    }
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

int most_partial_sums(std::int64_t leaves) {
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

void ordered_reduce_scatter(const Tensor& shard, const std::vector<Shard>& shards, OrderedSum& mine,
                            std::int64_t leaves, Communicator& communicator, const Stream& stream) {
  NodeExchange exchange(shards, leaves, communicator);
  require(mine.nodes() == exchange.nodes(communicator.rank()),
          "an ordered sum over ranks wants each rank's own leaves");
  exchange.receive(mine, stream);
  mine = {};
  const Tensor total = exchange.total(stream);
  if (shard.elements() > 0) copy(flat(shard), total, stream);
}

void ordered_all_reduce(const Tensor& total, OrderedSum& mine, std::int64_t leaves,
                        Communicator& communicator, const Stream& stream) {
  const std::vector<Shard> shards = equal_shards(total.elements(), communicator.size());
  const Shard& part = shards[static_cast<std::size_t>(communicator.rank())];
  const Tensor own = flat(total).rows(part.first, part.last);
  ordered_reduce_scatter(own, shards, mine, leaves, communicator, stream);
  communicator.all_gather(flat(total), own, stream);
}

}  // namespace hybrid_trainer
