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

/// Where a rank's part of weights begins: at an element of one of them.
struct WeightCut {
  std::size_t weight = 0;
  std::int64_t element = 0;
  bool operator==(const WeightCut&) const = default;
};

/// Consecutive weights [first, last) whose gradients or values ranks send each other together, and
/// where they are cut into a part for each rank: ranks + 1 cuts, of which the first is the beginning
/// and the last the end. Not cut, where each rank has all of them.
struct WeightGroup {
  std::size_t first = 0, last = 0;
  std::vector<WeightCut> cuts{};
};

/// Groups with f32 values of at least `bytes`, but for the last one; the last weights come first, as
/// backward comes to them.
std::vector<WeightGroup> group_weights(const std::vector<Parameter*>& weights, std::int64_t bytes);

/// distributed.bucket_bytes, or what it is where it is left to the weights.
std::int64_t bucket_bytes_for(const std::vector<Parameter*>& weights,
                              const DistributedConfig& config);

/// The same groups, each cut where what updates a weight allows (`units` of elements, see cut_units),
/// so that the parts of the groups so far are as equal as they can be: what a group leaves one rank
/// short of, the next ones give it. Where a group's own parts are not about equal, since weights stay
/// whole, it is made one with the next, so that no rank's link has to take it all.
std::vector<WeightGroup> cut_groups(const std::vector<WeightGroup>& groups,
                                    const std::vector<Parameter*>& weights,
                                    const std::vector<std::int64_t>& units, int ranks);

/// Brings weights of which each rank has a part to where they are whole, ahead of their use: the
/// forward and backward pass of a micro-batch is expected to use them in the order of the last one.
/// All ranks compute with the same weights in the same order, so that they expect the same. It is no
/// Prefetcher: a gather is a collective, which no rank may leave out where its memory is short.
class WeightGathers {
 public:
  /// Gathers begin while those ahead are of fewer than `bytes_ahead`; 0: none is ahead. `ranks` must
  /// outlive it.
  WeightGathers(Communicator& ranks, std::size_t bytes_ahead)
      : ranks_(ranks), bytes_ahead_(bytes_ahead) {}
  /// A weight with each rank's part of it and this rank's, which must outlive it. Returns its number.
  std::size_t add(const Shape& shape, const Parameter& mine, std::vector<Shard> parts);

  /// The whole of one, for one use of it. A collective; blocks on a processor.
  Tensor take(std::size_t weight, DType dtype, const Stream& stream);
  /// A micro-batch's pass begins; `another_follows`, with the same weights. What is used without one,
  /// as in evaluations, is not ahead.
  void begin_pass(bool another_follows);
  /// What was computed since the last begin_pass or end_pass is computed again, with any numbers: what
  /// was gathered since then is not gathered again, and is 0.
  void repeat();
  /// Weights change, or are held in other dtypes: the pass is over, and what is ahead is of no use.
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
  void begin_what_follows(const Stream& stream);
  void begin_ahead(const Stream& stream);
  Tensor take_again(const Use& use, const Stream& stream);

  Communicator& ranks_;
  std::size_t bytes_ahead_;
  std::vector<Source> sources_;
  std::vector<Use> order_;  // of the last pass
  std::vector<Use> used_;   // in this one, if there is one
  bool is_in_pass_ = false, is_as_before_ = false, another_follows_ = false;
  std::size_t uses_ = 0, gathered_ = 0;  // see repeat
  bool owes_ahead_ = false;              // what follows the last one of them is not begun
  std::deque<Gather> ahead_;
};

class WeightParts;

/// Whole weights of which each rank changes its own parts: brings others' changes to this rank while
/// it goes on. A weight that is used waits for its group (WeightGroup); in the order of their use
/// groups are sent one after the other, through memory of one bucket. It is no Prefetcher: what
/// arrives stays, and all ranks send the same groups in the same order.
class WeightArrivals {
 public:
  /// Of the weights of `parts`. `beside`: takes the place of each weight's storage until this ends;
  /// else a change has arrived when send returns.
  WeightArrivals(const WeightParts& parts, std::int64_t bucket_bytes, bool beside,
                 const Stream& stream);
  /// Waits for what is under way, unless an exception is.
  ~WeightArrivals();
  WeightArrivals(const WeightArrivals&) = delete;
  WeightArrivals& operator=(const WeightArrivals&) = delete;

  /// Own parts have changed, on all ranks.
  void masters_changed();
  /// That gets under way. A collective, unless nothing has changed.
  void send();
  /// Masters and compute copy of a whole weight are what all ranks made them. Blocks on a processor.
  /// Sends first, if nobody has.
  void wait_for(std::size_t weight);
  /// Where the weight itself lies.
  WeightStorage& storage(std::size_t weight) const;
  /// The same for one's own part of it, which may be changed: it is not being sent any more.
  WeightStorage& own_storage(std::size_t weight);

 private:
  class ArrivingWeight;
  /// What goes on beside owns its tensors: pieces of masters, and the bucket that they go through.
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
  std::vector<ArrivingWeight*> beside_;  // owned by their parameters; none where a change blocks
  std::vector<std::optional<CollectiveTicket>> under_way_;  // by group
  std::vector<bool> is_copied_;  // whether a weight's compute copy is that of its masters
  bool has_changed_ = false;
  Tensor bucket_;  // while any group is under way
};

/// How ranks share weights.
struct WeightSharing {
  /// Parts lie apart, and a weight is gathered each time that it is computed with; else whole weights
  /// lie on every rank.
  bool apart = false;
  /// Whole weights that have changed arrive beside what is computed until one is used. They have to
  /// stay on the device.
  bool beside = false;
  /// Weights that travel together have at least so many bytes.
  std::int64_t bucket_bytes = 0;
  std::size_t bytes_ahead = 0;  // where they lie apart: see WeightGathers
};

/// The trainable weights as several ranks share them: what optimizer, predictions and snapshots of a
/// rank work on is its own part of each weight.
class WeightParts {
 public:
  /// All must outlive it. Apart it moves the masters: others' parts are freed. Collective then.
  WeightParts(const std::vector<Parameter*>& weights, const OptimizerConfig& optimizer,
              Communicator& ranks, const WeightSharing& sharing, const Stream& stream);
  /// A part of each weight, in their order, with its name and role; of one that belongs to others
  /// it has no elements. A whole one keeps its shape, others are vectors.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const std::vector<Parameter*>& weights() const { return weights_; }
  /// Elements of a weight that are a rank's own.
  Shard of(std::size_t weight, int rank) const;
  Shard mine(std::size_t weight) const { return of(weight, ranks_.rank()); }
  /// In the order of group_weights, and cut.
  const std::vector<WeightGroup>& groups() const { return groups_; }
  std::size_t group_of(std::size_t weight) const { return group_of_[weight]; }
  Communicator& ranks() const { return ranks_; }

  /// The masters of ranks' own parts have changed, on all ranks: compute copies of parts that lie
  /// apart are made anew.
  void masters_changed(const Stream& stream);
  /// What has changed gets under way to where it is whole; a weight that is used earlier does it, too.
  /// A collective.
  void send_changes();
  /// A micro-batch's forward and backward pass begins; `another_follows` in this step.
  void begin_pass(bool another_follows) { gathers_.begin_pass(another_follows); }
  /// The same of a forward pass alone.
  void begin_forward(const Stream& stream) { gathers_.end_pass(stream); }
  /// The pass is gone through again, for what ranks do together in it: weights may be 0.
  void repeat_pass() { gathers_.repeat(); }
  /// Σ x·y of each chunk (kernels::chunk_dots) of each weight, over all ranks. x and y: by weight,
  /// the rank's own part of it. A collective; blocks.
  std::vector<std::vector<double>> wait_for_chunk_dots(const std::vector<Tensor>& x,
                                                       const std::vector<Tensor>& y,
                                                       const Stream& stream) const;
  /// Their sum over one weight, of which x and y are the rank's own parts. A collective; blocks.
  double wait_for_dot(const Tensor& x, const Tensor& y, const Stream& stream) const;

 private:
  const std::vector<Parameter*>& weights_;
  Communicator& ranks_;
  bool apart_;
  std::vector<WeightGroup> groups_;
  std::vector<std::size_t> group_of_;       // each weight
  WeightGathers gathers_;                   // where weights lie apart
  std::optional<WeightArrivals> arrivals_;  // where they do not
  std::vector<std::unique_ptr<Parameter>> own_;
  std::vector<Parameter*> parameters_;
};

}  // namespace hybrid_trainer
