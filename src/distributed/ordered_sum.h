#pragma once

#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// Node of a binary summation tree over a step's micro-batches, the leaves 0 … M − 1. It depends
/// only on M, so that the sum is bit-identical for any assignment of leaves to ranks. A node of
/// level l and index i sums the leaves [i·2^l, (i + 1)·2^l), as its lower half plus its upper half.
/// The largest nodes that cover M leaves are added from last to first. The error grows with log M,
/// not with M. Source: Higham 1993, "The accuracy of floating point summation".
struct SumNode {
  int level = 0;
  std::int64_t index = 0;
  std::int64_t first() const { return index << level; }
  std::int64_t last() const { return (index + 1) << level; }
  bool operator==(const SumNode&) const = default;
};

/// Returns the largest nodes that cover leaves [first, last), in order: at most 2·(⌊log₂M⌋ + 1).
std::vector<SumNode> nodes_of(std::int64_t first, std::int64_t last);

/// Returns the maximum number of partial sums if leaves are added in order: at most ⌈log₂M⌉.
int max_partial_sums(std::int64_t leaves);

/// Returns the leaves of a rank, in contiguous ranges: [r·M/R, (r + 1)·M/R).
Shard leaves_of(std::int64_t leaves, int rank, int ranks);

/// Sums tensors that are nodes of the tree: f32, of equal size, in place.
class OrderedSum {
 public:
  /// Adds the next node in order and takes ownership of its tensor. Throws ShapeMismatch for a
  /// tensor of another size, and Error if a leaf is skipped.
  void add(const SumNode& node, Tensor values, const Stream& stream);
  const std::vector<SumNode>& nodes() const { return nodes_; }
  const Tensor& values(std::size_t node) const { return values_[node]; }
  /// Returns the total and clears the sum. Returns an undefined tensor if the sum is empty.
  Tensor take_total(const Stream& stream);

 private:
  void merge_last(const Stream& stream);

  std::vector<SumNode> nodes_;
  std::vector<Tensor> values_;
};

std::vector<Shard> equal_shards(std::int64_t elements, int ranks);

/// Elements of a tensor that ranks sum together, and each rank's shard, which receives its sum.
struct SharedElements {
  Shard elements;
  std::vector<Shard> shards;
};

/// Sums leaves over all ranks: each rank computes the leaves given by leaves_of and receives the
/// sum of its shard. `shards` cover all elements. A rank receives its shard of every node by
/// all_to_all and adds the shards in the order of the tree, for any number of ranks.
class OrderedReduction {
 public:
  /// Allocates receive buffers for this rank's shards. Throws OutOfMemory, or Error if `mine` sums
  /// other leaves.
  OrderedReduction(std::vector<Shard> shards, OrderedSum mine, std::int64_t leaves,
                   const Communicator& ranks, const Stream& stream);
  /// Writes this rank's shard of the sum. `shard` may share memory with `mine`. Does not allocate
  /// memory, so that it may overlap with other work (Communicator::begin). Call it once.
  void run(const Tensor& shard, Communicator& ranks, const Stream& stream);

 private:
  /// Messages of one all_to_all, which exchanges the shards of one node of each rank. Counts of a
  /// rank with fewer nodes are 0.
  struct Round {
    std::vector<std::int64_t> send_counts, receive_counts;  // numbers of elements by rank
    Tensor sent, received;
  };
  std::int64_t elements_of(int rank) const;
  Round make_round(std::size_t round, const Communicator& ranks, const Stream& stream) const;

  std::vector<Shard> shards_;
  OrderedSum mine_;
  std::vector<std::vector<SumNode>> nodes_;  // indexed by rank
  std::vector<Round> rounds_;
};

}  // namespace hybrid_trainer
