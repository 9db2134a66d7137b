#pragma once

#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// The micro-batches of a step are the leaves 0 … M − 1 of a binary tree that depends on M alone. A
/// node of level l and index i sums the leaves [i·2^l, (i + 1)·2^l), the lower half plus the upper
/// one. Where M is no power of two, the nodes that cover it, largest first, are added from the last
/// to the first. So the sum has the same bits whichever rank computed which node. The error grows
/// with log M instead of M. Source: Higham 1993, "The accuracy of floating point summation",
/// pairwise summation.
struct SumNode {
  int level = 0;
  std::int64_t index = 0;
  std::int64_t first() const { return index << level; }
  std::int64_t last() const { return (index + 1) << level; }
  bool operator==(const SumNode&) const = default;
};

/// The largest nodes that cover leaves [first, last), in their order; of a whole step at most
/// ⌊log₂M⌋ + 1, of a part at most twice as many.
std::vector<SumNode> nodes_of(std::int64_t first, std::int64_t last);

/// The most sums of earlier leaves that there are while a leaf is computed, one after the other, of
/// `leaves`: at most ⌈log₂M⌉.
int most_partial_sums(std::int64_t leaves);

/// The leaves of a rank where ranks take them contiguously: [r·M/R, (r + 1)·M/R).
Shard leaves_of(std::int64_t leaves, int rank, int ranks);

/// Sums tensors that are nodes of the tree. f32, all of one count; adds in place.
class OrderedSum {
 public:
  /// The next node after those that were added; its tensor now belongs to the sum. Throws
  /// ShapeMismatch where it has another count, and Error where a leaf is left out.
  void add(const SumNode& node, Tensor values, const Stream& stream);
  const std::vector<SumNode>& nodes() const { return nodes_; }
  const Tensor& values(std::size_t node) const { return values_[node]; }
  /// The sum of all, after which there are none; undefined where none was added.
  Tensor take_total(const Stream& stream);

 private:
  void merge_last(const Stream& stream);

  std::vector<SumNode> nodes_;
  std::vector<Tensor> values_;
};

/// The shards of all ranks (shard_of), by rank.
std::vector<Shard> equal_shards(std::int64_t elements, int ranks);

/// Elements of a tensor that ranks sum together, and by rank the shard of them that each keeps.
struct SharedElements {
  Shard elements;
  std::vector<Shard> shards;
};

/// The sum of `leaves` leaves over all ranks, of which each has its leaves_of, and keeps its own of
/// `shards`, which follow one another and cover all elements. The bits do not depend on the number
/// of ranks: a rank gets its shard of each rank's nodes by all_to_all and sums them itself.
class OrderedReduction {
 public:
  /// Takes the memory for what is received: this rank's shard of all nodes. Throws Error where
  /// `mine` holds other leaves, and OutOfMemory.
  OrderedReduction(std::vector<Shard> shards, OrderedSum mine, std::int64_t leaves,
                   const Communicator& ranks, const Stream& stream);
  /// `shard` becomes this rank's; it may be in the memory of `mine`. Allocates nothing, so that it
  /// may go on beside other work (Communicator::begin). Once.
  void run(const Tensor& shard, Communicator& ranks, const Stream& stream);

 private:
  /// The part of one of its nodes that each rank sends, if it has as many.
  struct Round {
    std::vector<std::int64_t> send_counts, receive_counts;  // of elements, by rank
    Tensor sent, received;
  };
  std::int64_t elements_of(int rank) const;
  Round make_round(std::size_t round, const Communicator& ranks, const Stream& stream) const;

  std::vector<Shard> shards_;
  OrderedSum mine_;
  std::vector<std::vector<SumNode>> nodes_;  // by rank
  std::vector<Round> rounds_;
};

}  // namespace hybrid_trainer
