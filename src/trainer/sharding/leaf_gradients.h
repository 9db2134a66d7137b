#pragma once

#include <unordered_set>

#include "hybrid_trainer/nn/gradient_sink.h"
#include "phases/engine.h"
#include "src/trainer/sharding/weight_parts.h"

namespace hybrid_trainer {

/// Action of all ranks after a lack of memory in a step: the largest value that a rank requests.
enum class StepRetry : char {
  kNone,    // memory was sufficient
  kSame,    // repeat: the rank has freed memory
  kHalved,  // repeat with micro-batches of half the size
};

/// The gradient of a step over one or more ranks. The gradients of micro-batches are the leaves of
/// the tree in src/distributed/ordered_sum.h, and are summed in its order for any number of ranks.
class LeafGradients : public GradientSink {
 public:
  explicit LeafGradients(Communicator& ranks) : ranks_(ranks) {}
  Communicator& ranks() const { return ranks_; }
  /// Returns whether other ranks wait for this one during a step.
  virtual bool involve_peers() const { return ranks_.size() > 1; }
  /// Returns the micro-batches of a rank, by default a contiguous range.
  virtual std::vector<std::int64_t> leaves_of_rank(std::int64_t leaves, int rank) const;
  /// Returns this rank's share of a step's micro-batches, from 0 to 1.
  double own_share(std::int64_t leaves) const {
    const auto own = leaves_of_rank(leaves, ranks_.rank()).size();
    return static_cast<double>(own) / static_cast<double>(leaves);
  }
  /// Returns the number of micro-batches that each rank computes. If ranks wait for each other in
  /// each round, some ranks compute additional micro-batches, which are ignored.
  virtual std::int64_t rounds(std::int64_t leaves) const {
    return leaves_of(leaves, ranks_.rank(), ranks_.size()).elements();
  }
  /// Begins micro-batch `leaf` of `leaves`. If `leaf` is empty, its gradient is ignored. If
  /// called again before end_leaf, the whole sum is invalid until free(); messages that were sent
  /// are not repeated, but the remaining ones are sent. Throws OutOfMemory.
  virtual void begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) = 0;
  /// Ends the micro-batch. With several ranks, throws Error if a parameter has no gradient.
  virtual void end_leaf() = 0;
  /// Makes gradient() the sum over all micro-batches of all ranks. Collective.
  virtual void reduce(std::int64_t leaves) = 0;
  /// Completes pending communication. Call it instead of `reduce` if the sum is invalid.
  virtual void drain() {}
  virtual void free() = 0;

  /// Returns the mean loss over all ranks. `losses`: this rank's micro-batches, (1) f64 each. Sets
  /// `retry` to the largest value of all ranks. Collective; blocks.
  double wait_for_mean_of(const std::vector<Tensor>& losses, std::int64_t leaves, StepRetry& retry,
                          const Stream& stream) const;

 protected:
  static void check_all_have_gradients(const std::vector<Parameter*>& parameters);

 private:
  Communicator& ranks_;
};

/// Sums micro-batches of a single rank, for each weight in the order of the tree, and passes each
/// complete sum to another sink. Only the gradient of one micro-batch is on the device.
class LocalGradients final : public LeafGradients {
 public:
  /// `total` receives each gradient as if there were one micro-batch.
  LocalGradients(const std::vector<Parameter*>& parameters, Communicator& alone,
                 GradientSink& total, const Stream& home, const Stream& stream);
  void begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) override;
  void end_leaf() override;
  void reduce(std::int64_t) override {}
  void free() override;
  Tensor gradient(const Parameter& parameter) const override;
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void ready(const Parameter& parameter, const Stream& stream) override;

 private:
  void add_complete_gradients();
  void add(const Parameter& parameter);
  bool is_last() const { return leaf_ + 1 == leaves_; }
  void add_partial(const Tensor& to, std::vector<Tensor>& partials) const;

  const std::vector<Parameter*>& parameters_;
  GradientSink& total_;
  const Stream& home_;
  const Stream& stream_;
  std::int64_t leaf_ = 0, leaves_ = 1;
  /// Gradients of this micro-batch, unless it is the last.
  std::unordered_map<const Parameter*, Tensor> held_;
  /// Pending nodes of the tree, in the pool of `home`.
  std::unordered_map<const Parameter*, std::vector<Tensor>> partials_;
  /// Weights with complete gradients. Their gradients are added to the sums when the next gradient
  /// begins, not in `ready`, which a destructor calls and which must not throw.
  std::vector<const Parameter*> complete_;
  std::unordered_set<const Parameter*> written_;  // parameters with a gradient from any micro-batch
};

/// Gradients that ranks sum in buckets. Each rank sums contiguous micro-batches. During the last
/// backward, ranks sum each bucket whose gradients are complete. The gradient of a micro-batch is
/// one f32 tensor of all parameters. The total overwrites the first micro-batch's gradient.
class OrderedGradients final : public LeafGradients, public GradientSums {
 public:
  /// If `parts` is not null, a rank keeps only the sums of its shards, and buckets are the groups
  /// of `parts`. Otherwise, a bucket has at least `bucket_bytes`.
  OrderedGradients(const std::vector<Parameter*>& parameters, Communicator& ranks,
                   const WeightParts* parts, std::int64_t bucket_bytes, const Stream& stream);
  bool involve_peers() const override { return ranks().size() > 1 && !keeps_local_; }
  void begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) override;
  void end_leaf() override;
  void reduce(std::int64_t leaves) override;
  void drain() override;
  void free() override;
  Tensor gradient(const Parameter& parameter) const override { return part_of(values_, parameter); }
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void ready(const Parameter& parameter, const Stream& stream) override;

  Communicator& ranks() const override { return LeafGradients::ranks(); }
  void keep_local(bool keeps) override { keeps_local_ = keeps; }
  Tensor take() override { return std::exchange(values_, {}); }
  void show(Tensor values) override { values_ = std::move(values); }
  Tensor own_parts_of(const Tensor& whole) const override;
  std::vector<SharedElements> shared_elements() const override;
  Tensor part_of(const Tensor& sum, const Parameter& parameter) const override;
  std::int64_t elements() const override { return elements_; }
  std::int64_t first_element(const Parameter& parameter) const override {
    return first_.at(&parameter);
  }

 private:
  struct Bucket {
    Shard elements;
    std::vector<Shard> shards;                // shards of `elements`, by rank
    std::int64_t own_first;                   // offset of this rank's shard in its values
    std::size_t parameters = 0, missing = 0;  // missing: without a complete gradient
  };
  void make_bucket(const WeightGroup& group);
  std::vector<Shard> shards_of(const WeightGroup& group, const Shard& elements) const;
  OrderedSum sum_of(const Bucket& bucket) const;
  void begin_complete_buckets();
  void begin(const Bucket& bucket);

  const std::vector<Parameter*>& parameters_;
  const WeightParts* parts_;
  const Stream& stream_;
  std::unordered_map<const Parameter*, std::int64_t> first_;  // offset of each parameter
  std::int64_t elements_ = 0, own_elements_ = 0;  // of all parameters; of this rank's shards
  std::vector<Bucket> buckets_;                   // buckets in the order of backward
  std::unordered_map<const Parameter*, std::size_t> bucket_of_;
  OrderedSum sum_;
  std::int64_t leaf_ = 0, leaves_ = 1;  // current micro-batch, and number of micro-batches
  bool is_last_ = false;  // whether it is this rank's last micro-batch, after which ranks sum
  bool keeps_local_ = false;
  /// First bucket whose sum has not begun. Sums begin in the same order on all ranks, when the next
  /// gradient is written (`ready` must not throw).
  std::size_t next_ = 0;
  std::vector<std::shared_ptr<OrderedReduction>> reductions_;  // pending
  CollectiveTicket last_begun_ = 0;
  Tensor values_;  // gradient of a micro-batch; at the end the total, or this rank's shard
};

/// Sharded gradients. Rank j mod R computes micro-batch j. During backward, complete gradients are
/// sent to their owners, a bucket at a time, and freed; a rank stores only the sums of its shards
/// and the current and pending buckets. Each bucket is a collective, so ranks without a micro-batch
/// in the last round recompute their last one but send no data.
class ScatteredGradients final : public LeafGradients {
 public:
  /// `parts` must outlive this object. A bucket is sent when it has at least `bucket_bytes`.
  ScatteredGradients(const WeightParts& parts, std::int64_t bucket_bytes, const Stream& stream);
  std::vector<std::int64_t> leaves_of_rank(std::int64_t leaves, int rank) const override;
  std::int64_t rounds(std::int64_t leaves) const override;
  void begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) override;
  void end_leaf() override;
  void reduce(std::int64_t leaves) override;
  void drain() override;
  void free() override;
  /// Returns the gradient of a whole weight during backward, or of a part after reduce.
  Tensor gradient(const Parameter& parameter) const override;
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void ready(const Parameter& parameter, const Stream& stream) override;

 private:
  struct Place {
    std::size_t bucket;
    std::int64_t first;  // offset in the bucket
  };
  /// A pending bucket: data for this rank's parts from each rank.
  struct Arrival {
    std::size_t bucket;
    std::int64_t first_leaf;  // first leaf of rank 0
    Tensor sent, received;
    std::vector<std::int64_t> counts;
    CollectiveTicket job;
  };
  static constexpr std::size_t kMaxInFlight = 2;
  std::vector<std::int64_t> elements_by_rank() const;
  Tensor pack(std::int64_t elements) const;
  void place_bucket();
  void drop_held();
  void end_bucket();
  void send_bucket();
  void add_oldest_arrival();
  bool has_leaf(int rank) const { return round_ * ranks().size() + rank < leaves_; }

  const WeightParts& parts_;
  std::size_t bucket_bytes_;
  const Stream& stream_;
  std::unordered_map<const Parameter*, std::size_t> index_;  // of whole weights
  std::unordered_map<const Parameter*, Tensor> held_;        // of whole weights, not sent yet
  std::vector<std::size_t> bucket_;                          // indices of complete gradients
  std::size_t bytes_ = 0;                                    // bytes of the bucket
  std::deque<Arrival> arrivals_;
  std::size_t buckets_ = 0, sent_ = 0;  // numbers of this micro-batch's buckets
  std::int64_t leaves_ = 0, round_ = -1;
  bool is_in_leaf_ = false, counts_ = true;  // see begin_leaf
  std::vector<OrderedSum> sums_;             // sums of this rank's parts, by bucket
  std::vector<Tensor> totals_;
  std::unordered_map<const Parameter*, Place> places_;  // place of each part
};

}  // namespace hybrid_trainer
