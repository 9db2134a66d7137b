#pragma once

#include <deque>
#include <exception>

#include "hybrid_trainer/distributed/distributed_config.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// Start of a rank's part of the weights: the index of a weight, and the index of an element in
/// this weight.
struct WeightCut {
  std::size_t weight = 0;
  std::int64_t element = 0;
  bool operator==(const WeightCut&) const = default;
};

/// Consecutive weights [first, last) that ranks communicate together. `cuts`: ranks + 1 boundaries
/// of the ranks' parts, from the start of the group to its end; empty if the group is not split.
struct WeightGroup {
  std::size_t first = 0, last = 0;
  std::vector<WeightCut> cuts{};
};

/// Groups weights in backward order. Each group except the last has at least `bytes` of f32 values.
std::vector<WeightGroup> group_weights(const std::vector<Parameter*>& weights, std::int64_t bytes);

/// Returns distributed.bucket_bytes, or its default for these weights.
std::int64_t bucket_bytes_for(const std::vector<Parameter*>& weights,
                              const DistributedConfig& config);

/// Splits groups among ranks at multiples of `units` elements (see cut_units), so that the ranks'
/// totals are as equal as possible. A group that cannot be split about equally is merged with the
/// next group. Otherwise, a single rank's link would carry the whole group.
std::vector<WeightGroup> cut_groups(const std::vector<WeightGroup>& groups,
                                    const std::vector<Parameter*>& weights,
                                    const std::vector<std::int64_t>& units, int ranks);

/// Gathers sharded weights before their use, assuming that each micro-batch's pass uses them in the
/// order of the last pass. A gather is collective, so it cannot be skipped if memory is short.
class WeightGathers {
 public:
  /// `bytes_ahead`: bytes of weights to gather before their use; 0: none.
  WeightGathers(Communicator& ranks, std::size_t bytes_ahead)
      : ranks_(ranks), bytes_ahead_(bytes_ahead) {}
  /// Adds a weight and returns its index. `parts`: all ranks' shards. `mine` must outlive this
  /// object.
  std::size_t add(const Shape& shape, const Parameter& mine, std::vector<Shard> parts);

  /// Returns the whole weight for one use. Collective; blocks on a CPU.
  Tensor take(std::size_t weight, DType dtype, const Stream& stream);
  /// Begins the pass of a micro-batch. `has_next_pass`: whether another one with the same weights
  /// follows. Outside a pass, weights are gathered only when they are used.
  void begin_pass(bool has_next_pass);
  /// Call it before a failed pass is repeated, if only the other ranks need the repetition's
  /// collectives. Weights that were gathered since the last begin_pass or end_pass are replaced by
  /// zeros.
  void repeat();
  /// Ends the pass and drops gathered weights, because weights or their dtypes change.
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
  std::vector<Use> order_;  // uses of the last pass
  std::vector<Use> used_;   // uses of this pass
  bool is_in_pass_ = false, repeats_order_ = false, has_next_pass_ = false;
  std::size_t uses_ = 0, gathered_ = 0;  // see repeat
  bool has_pending_gathers_ = false;     // gathers that follow the last use have not begun
  std::deque<Gather> ahead_;
};

class WeightParts;

/// Exchanges updates of replicated weights while the ranks continue. Using a weight waits for its
/// group. Groups are sent in the order of use, the same on all ranks, through one bucket.
class WeightArrivals {
 public:
  /// With `background`, transfers overlap with computation, and the storage of each weight is
  /// replaced for this object's lifetime. Otherwise, `send` waits for the transfers.
  WeightArrivals(const WeightParts& parts, std::int64_t bucket_bytes, bool background,
                 const Stream& stream);
  /// Waits for pending transfers, except if an exception is being handled.
  ~WeightArrivals();
  WeightArrivals(const WeightArrivals&) = delete;
  WeightArrivals& operator=(const WeightArrivals&) = delete;

  /// Marks all ranks' shards as changed. Called on all ranks.
  void masters_changed();
  /// Starts to send the changes. Collective, unless nothing has changed.
  void send();
  /// Waits until a whole weight is up to date, after sending it if necessary. Blocks on a CPU.
  void wait_for(std::size_t weight);
  WeightStorage& storage(std::size_t weight) const;
  /// Waits until this rank's shard is no longer being sent. Returns the shard's storage, which the
  /// caller may change.
  WeightStorage& own_storage(std::size_t weight);

 private:
  class ArrivingWeight;
  struct Piece {
    Tensor to, from;
  };
  struct Round {
    Tensor all;
    std::vector<std::int64_t> counts;  // numbers of elements, by rank
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
  std::vector<std::optional<CollectiveTicket>> in_flight_;  // indexed by group
  std::vector<bool> is_copied_;  // whether a weight's compute copy matches its masters
  bool has_changed_ = false;
  Tensor bucket_;  // allocated while any group is pending
};

struct WeightSharing {
  /// True if weights are sharded and gathered for each use, instead of replicated on all ranks.
  bool shards = false;
  /// True if transfers overlap with computation. Requires that weights stay on the device.
  bool background = false;
  std::int64_t bucket_bytes = 0;  // minimum size of a message
  std::size_t bytes_ahead = 0;    // see WeightGathers; used if `shards` is set
};

/// Trainable weights that ranks share. The optimizer, predictions and snapshots of a rank use only
/// its shards.
class WeightParts {
 public:
  /// If `sharing.shards` is set, frees the other ranks' master weights; collective in this case.
  WeightParts(const std::vector<Parameter*>& weights, const OptimizerConfig& optimizer,
              Communicator& ranks, const WeightSharing& sharing, const Stream& stream);
  /// Returns this rank's part of each weight, in order, with its name and role. A part without
  /// elements belongs to other ranks. A whole weight keeps its shape; other parts are vectors.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const std::vector<Parameter*>& weights() const { return weights_; }
  Shard of(std::size_t weight, int rank) const;
  Shard mine(std::size_t weight) const { return of(weight, ranks_.rank()); }
  const std::vector<WeightGroup>& groups() const { return groups_; }
  std::size_t group_of(std::size_t weight) const { return group_of_[weight]; }
  Communicator& ranks() const { return ranks_; }

  /// Call after master weights have changed on all ranks. Refreshes compute copies of sharded
  /// weights.
  void masters_changed(const Stream& stream);
  /// Starts to send the changes, unless the use of a weight has already started it. Collective.
  void send_changes();
  void begin_pass(bool has_next_pass) { gathers_.begin_pass(has_next_pass); }
  void begin_forward(const Stream& stream) { gathers_.end_pass(stream); }
  void repeat_pass() { gathers_.repeat(); }
  /// Returns Σ x·y of each chunk (kernels::chunk_dots) of each weight, over all ranks. x and y:
  /// this rank's parts, by weight. Collective; blocks.
  std::vector<std::vector<double>> wait_for_chunk_dots(const std::vector<Tensor>& x,
                                                       const std::vector<Tensor>& y,
                                                       const Stream& stream) const;
  /// Returns Σ x·y over one weight. x and y: this rank's parts. Collective; blocks.
  double wait_for_dot(const Tensor& x, const Tensor& y, const Stream& stream) const;

 private:
  const std::vector<Parameter*>& weights_;
  Communicator& ranks_;
  bool shards_;
  std::vector<WeightGroup> groups_;
  std::vector<std::size_t> group_of_;       // indexed by weight
  WeightGathers gathers_;                   // used for sharded weights
  std::optional<WeightArrivals> arrivals_;  // used for replicated weights
  std::vector<std::unique_ptr<Parameter>> own_;
  std::vector<Parameter*> parameters_;
};

}  // namespace hybrid_trainer
