#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <vector>

#include "hybrid_trainer/distributed/distributed_config.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// Start of a rank's part of the weights: an element of one weight.
struct WeightCut {
  std::size_t weight = 0;
  std::int64_t element = 0;
  bool operator==(const WeightCut&) const = default;
};

/// Consecutive weights [first, last) that ranks communicate together. `cuts` are the boundaries of
/// the ranks' parts: ranks + 1 cuts, from the group's start to its end, or none if it is not split.
struct WeightGroup {
  std::size_t first = 0, last = 0;
  std::vector<WeightCut> cuts{};
};

/// Groups weights in backward order. Each group except the last has at least `bytes` of f32 values.
std::vector<WeightGroup> group_weights(const std::vector<Parameter*>& weights, std::int64_t bytes);

/// Returns distributed.bucket_bytes, or its default for these weights.
std::int64_t bucket_bytes_for(const std::vector<Parameter*>& weights,
                              const DistributedConfig& config);

/// Splits groups over ranks, at multiples of `units` elements (see cut_units). Totals over all
/// groups so far are as equal as possible, because later groups compensate imbalance. A group is
/// merged with the next one if it cannot be split about equally because weights stay whole.
/// Otherwise, the link of a single rank would carry all of it.
std::vector<WeightGroup> cut_groups(const std::vector<WeightGroup>& groups,
                                    const std::vector<Parameter*>& weights,
                                    const std::vector<std::int64_t>& units, int ranks);

/// Gathers sharded weights ahead of their use. Each micro-batch's pass is expected to use them in
/// the order of the last pass, which is the same on all ranks. Unlike a Prefetcher, it must never
/// skip a gather when memory is short, because a gather is collective.
class WeightGathers {
 public:
  /// `bytes_ahead`: bytes to gather ahead of use, or 0 to disable this. `ranks` must outlive it.
  WeightGathers(Communicator& ranks, std::size_t bytes_ahead)
      : ranks_(ranks), bytes_ahead_(bytes_ahead) {}
  /// Adds a weight and returns its index. `parts`: the ranks' shards. `mine` must outlive it.
  std::size_t add(const Shape& shape, const Parameter& mine, std::vector<Shard> parts);

  /// Returns the whole weight for one use. Collective; blocks on a CPU.
  Tensor take(std::size_t weight, DType dtype, const Stream& stream);
  /// Begins the pass of a micro-batch. `has_next_pass`: whether a pass with the same weights
  /// follows. Uses outside a pass, as in evaluations, are not gathered ahead.
  void begin_pass(bool has_next_pass);
  /// Must be called before the uses since the last begin_pass or end_pass are repeated with results
  /// that do not count. Weights gathered since then are replaced by zeros.
  void repeat();
  /// Ends the pass and drops weights gathered ahead, because weights or their dtypes change.
  void end_pass(const Stream& stream);

 private:
  struct Source {
    Shape shape;
    const Parameter* mine;
    std::vector<Shard> parts;
  };
  struct Use {
    std::size_t weight;
    DType dtype;
    bool operator==(const Use&) const = default;
  };
  struct Gather {
    Use use;
    Tensor whole;
    CollectiveTicket job;
  };
  void drop_ahead(const Stream& stream);
  Gather begin(const Use& use, const Stream& stream) const;
  void begin_next_gathers(const Stream& stream);
  void prefetch(const Stream& stream);
  Tensor take_repeated(const Use& use, const Stream& stream);

  Communicator& ranks_;
  std::size_t bytes_ahead_;
  std::vector<Source> sources_;
  std::vector<Use> order_;  // of the last pass
  std::vector<Use> used_;   // in this pass, if any
  bool is_in_pass_ = false, repeats_order_ = false, has_next_pass_ = false;
  std::size_t uses_ = 0, gathered_ = 0;  // see repeat
  bool has_pending_gathers_ = false;     // gathers after the last use have not begun
  std::deque<Gather> ahead_;
};

class WeightParts;

/// Receives other ranks' updates of replicated weights while this rank continues, if each rank
/// updates only its shards. Using a weight waits for its group (WeightGroup). Groups are sent one
/// after the other, in the order of use, through one bucket of memory. Unlike a Prefetcher, it
/// keeps the data, and all ranks send the same groups in the same order.
class WeightArrivals {
 public:
  /// Manages the weights of `parts`. With `background`, transfers overlap with computation, and the
  /// storage of each weight is replaced for this object's lifetime. Otherwise, send waits for them.
  WeightArrivals(const WeightParts& parts, std::int64_t bucket_bytes, bool background,
                 const Stream& stream);
  /// Waits for pending transfers, except during an exception.
  ~WeightArrivals();
  WeightArrivals(const WeightArrivals&) = delete;
  WeightArrivals& operator=(const WeightArrivals&) = delete;

  /// Marks the ranks' own shards as changed, on all ranks.
  void masters_changed();
  /// Starts sending changes. Collective, unless nothing has changed.
  void send();
  /// Waits until a whole weight is up to date. Sends first if necessary. Blocks on a CPU.
  void wait_for(std::size_t weight);
  /// Returns the weight's underlying storage.
  WeightStorage& storage(std::size_t weight) const;
  /// Returns the storage for changing this rank's shard, once the shard is no longer being sent.
  WeightStorage& own_storage(std::size_t weight);

 private:
  class ArrivingWeight;
  /// Tensors owned by a transfer: pieces of master weights, and the bucket.
  struct Piece {
    Tensor to, from;
  };
  struct Round {
    Tensor all;
    std::vector<std::int64_t> counts;  // of elements, by rank
    std::vector<Piece> out, in;
  };
  void begin(std::size_t group);
  std::int64_t elements_of(std::size_t group, int rank) const;
  std::int64_t longest_part(std::size_t group) const;
  Round make_round(std::size_t group, const Shard& of_each) const;
  template <class Visit>
  void visit_pieces(std::size_t group, int rank, const Shard& elements, const Visit& visit) const;
  void wait_for_group(std::size_t group);
  void copy_if_changed(std::size_t weight);

  const WeightParts& parts_;
  std::int64_t bucket_bytes_;
  const Stream& stream_;
  const int exceptions_ = std::uncaught_exceptions();
  std::vector<ArrivingWeight*> arriving_;  // owned by their parameters; empty if send waits
  std::vector<std::optional<CollectiveTicket>> in_flight_;  // by group
  std::vector<bool> is_copied_;  // whether a weight's compute copy matches its masters
  bool has_changed_ = false;
  Tensor bucket_;  // while any group is pending
};

/// Sharing of weights between ranks.
struct WeightSharing {
  /// Whether weights are sharded and gathered for every use, rather than replicated on all ranks.
  bool shards = false;
  /// If true, transfers of changed, replicated weights overlap with computation until a weight is
  /// used. The weights must stay on the device.
  bool background = false;
  /// Minimum bytes of weights that are sent together.
  std::int64_t bucket_bytes = 0;
  std::size_t bytes_ahead = 0;  // with `shards`: see WeightGathers
};

/// Trainable weights shared by ranks. A rank's optimizer, predictions and snapshots use its shards.
class WeightParts {
 public:
  /// All must outlive this object. `sharing.shards` frees other ranks' master shards, collectively.
  WeightParts(const std::vector<Parameter*>& weights, const OptimizerConfig& optimizer,
              Communicator& ranks, const WeightSharing& sharing, const Stream& stream);
  /// Returns this rank's part of each weight, in order, with its name and role. Parts owned by
  /// other ranks have no elements. A whole weight keeps its shape; other parts are vectors.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const std::vector<Parameter*>& weights() const { return weights_; }
  /// Returns a rank's elements of a weight.
  Shard of(std::size_t weight, int rank) const;
  Shard mine(std::size_t weight) const { return of(weight, ranks_.rank()); }
  /// Returns the groups in the order of group_weights, with their cuts.
  const std::vector<WeightGroup>& groups() const { return groups_; }
  std::size_t group_of(std::size_t weight) const { return group_of_[weight]; }
  Communicator& ranks() const { return ranks_; }

  /// Must be called after master weights have changed on all ranks. Refreshes compute copies of
  /// sharded weights.
  void masters_changed(const Stream& stream);
  /// Starts sending the changes to all ranks, unless a weight's use already did. Collective.
  void send_changes();
  /// Begins a micro-batch's pass. `has_next_pass`: whether another one follows in this step.
  void begin_pass(bool has_next_pass) { gathers_.begin_pass(has_next_pass); }
  void begin_forward(const Stream& stream) { gathers_.end_pass(stream); }
  /// Repeats the pass for its collectives only: weights may be 0.
  void repeat_pass() { gathers_.repeat(); }
  /// Returns Σ x·y of each chunk (kernels::chunk_dots) of each weight, over all ranks. x and y:
  /// this rank's parts, by weight. Collective; blocks.
  std::vector<std::vector<double>> wait_for_chunk_dots(const std::vector<Tensor>& x,
                                                       const std::vector<Tensor>& y,
                                                       const Stream& stream) const;
  /// Returns Σ x·y over one weight; x and y are this rank's parts. Collective; blocks.
  double wait_for_dot(const Tensor& x, const Tensor& y, const Stream& stream) const;

 private:
  const std::vector<Parameter*>& weights_;
  Communicator& ranks_;
  bool shards_;
  std::vector<WeightGroup> groups_;
  std::vector<std::size_t> group_of_;       // by weight
  WeightGathers gathers_;                   // used for sharded weights
  std::optional<WeightArrivals> arrivals_;  // used for replicated weights
  std::vector<std::unique_ptr<Parameter>> own_;
  std::vector<Parameter*> parameters_;
};

}  // namespace hybrid_trainer
