#pragma once

#include <unordered_set>
#include <utility>

#include "hybrid_trainer/nn/gradient_sink.h"
#include "phases/engine.h"
#include "src/distributed/communicator.h"
#include "src/distributed/ordered_sum.h"
#include "src/trainer/sharding/weight_parts.h"

namespace hybrid_trainer {

/// Action of all ranks after one of them ran out of memory in a step. The largest request applies.
enum class StepRetry : char {
  kNone,    // memory was sufficient
  kSame,    // repeat: the rank has freed memory
  kHalved,  // repeat with micro-batches of half the size
};

/// The gradient of a step over one or more ranks. Micro-batches' gradients are the leaves of the
/// tree in src/distributed/ordered_sum.h and are summed in its order, for any number of ranks.
class LeafGradients : public GradientSink {
 public:
  explicit LeafGradients(Communicator& ranks) : ranks_(ranks) {}
  Communicator& ranks() const { return ranks_; }
  /// Returns whether other ranks wait for this one during a step.
  virtual bool involve_peers() const { return ranks_.size() > 1; }
  /// Returns a rank's micro-batches of a step, in order.
  virtual std::vector<std::int64_t> leaves_of_rank(std::int64_t leaves, int rank) const = 0;
  /// Returns this rank's share of a step's micro-batches, from 0 to 1.
  double own_share(std::int64_t leaves) const {
    const auto own = leaves_of_rank(leaves, ranks_.rank()).size();
    return static_cast<double>(own) / static_cast<double>(leaves);
  }
  /// Returns the number of micro-batches that every rank computes. If ranks wait for each other in
  /// each round, it may exceed this rank's micro-batches; extra ones do not count.
  virtual std::int64_t rounds(std::int64_t leaves) const = 0;
  /// Begins micro-batch number `leaf` of `leaves`. Without `leaf`, its gradient does not count. If
  /// called again before end_leaf, the whole sum does not count until free(): the remaining
  /// messages are still sent, but sent ones are not repeated. Throws OutOfMemory.
  virtual void begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) = 0;
  /// Ends the micro-batch. Throws Error if a parameter got no gradient on one of several ranks.
  virtual void end_leaf() = 0;
  /// Makes gradient() the sum over all micro-batches of all ranks. Collective.
  virtual void reduce(std::int64_t leaves) = 0;
  /// Completes pending communication. Must be called in place of reduce if the sum does not count.
  virtual void drain() {}
  virtual void free() = 0;

  /// Returns the mean loss over all ranks' micro-batches. `losses`: this rank's, (1) f64 each, in
  /// order. Sets `retry` to the strongest request of all ranks. Collective; blocks.
  double wait_for_mean_of(const std::vector<Tensor>& losses, std::int64_t leaves, StepRetry& retry,
                          const Stream& stream) const;

 protected:
  static void check_all_have_gradients(const std::vector<Parameter*>& parameters);

 private:
  Communicator& ranks_;
};

/// Passes each complete gradient to another sink, on a single rank. Sums micro-batches per weight,
/// in the tree's order. Partial sums are in `home`, one micro-batch's gradient on the device.
class LocalGradients final : public LeafGradients {
 public:
  /// All must outlive this object. `total` gets each gradient as if there were one micro-batch.
  LocalGradients(const std::vector<Parameter*>& parameters, Communicator& alone,
                 GradientSink& total, const Stream& home, const Stream& stream);
  std::vector<std::int64_t> leaves_of_rank(std::int64_t leaves, int rank) const override;
  std::int64_t rounds(std::int64_t leaves) const override { return leaves; }
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
  std::unordered_map<const Parameter*, Tensor> held_;  // of this micro-batch, unless it is the last
  std::unordered_map<const Parameter*, std::vector<Tensor>> partials_;  // nodes so far, at home
  /// Weights with complete gradients. Their gradients are added to the sums when the next gradient
  /// begins, and not in ready, which a destructor calls and which must not throw.
  std::vector<const Parameter*> complete_;
  std::unordered_set<const Parameter*> written_;  // by any micro-batch
};

/// Each rank computes contiguous micro-batches and sums their gradients locally. In the backward
/// pass of its last micro-batch, ranks sum buckets of parameters as gradients complete. A
/// micro-batch's gradient is one f32 tensor of all parameters; the total replaces the first one.
class OrderedGradients final : public LeafGradients, public GradientSums {
 public:
  /// All must outlive this object. `parameters`: the trainable ones. With `parts`, a rank keeps
  /// only the sum of its own shards, and buckets are the groups of `parts`. Otherwise, a bucket has
  /// at least `bucket_bytes`.
  OrderedGradients(const std::vector<Parameter*>& parameters, Communicator& ranks,
                   const WeightParts* parts, std::int64_t bucket_bytes, const Stream& stream);
  bool involve_peers() const override { return ranks().size() > 1 && !keeps_local_; }
  std::vector<std::int64_t> leaves_of_rank(std::int64_t leaves, int rank) const override;
  std::int64_t rounds(std::int64_t leaves) const override;
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
    std::vector<Shard> shards;                // of `elements`, by rank
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
  std::int64_t elements_ = 0, own_elements_ = 0;  // of all parameters, and of this rank's shards
  std::vector<Bucket> buckets_;                   // in the order of backward
  std::unordered_map<const Parameter*, std::size_t> bucket_of_;
  OrderedSum sum_;
  std::int64_t leaf_ = 0, leaves_ = 1;  // current micro-batch, and number of micro-batches
  bool is_last_ = false;  // whether it is this rank's last, which is combined with other ranks'
  bool keeps_local_ = false;
  /// First bucket whose sum has not begun. Sums begin when the next gradient is written, not in
  /// ready, which must not throw. They begin in order, so that all ranks begin the same sums.
  std::size_t next_ = 0;
  std::vector<std::shared_ptr<OrderedReduction>> reductions_;  // pending
  CollectiveTicket last_begun_ = 0;
  Tensor values_;  // of one micro-batch; finally the total, or this rank's shard of it
};

/// Rank j mod R computes micro-batch j. During its backward pass, complete gradients are sent to
/// the owners of their shards, a bucket at a time, and freed. So a rank stores sums of its own
/// shards, the current bucket, and pending buckets. Ranks without a micro-batch in the last round
/// recompute their last one and send no data, because each bucket is a collective.
class ScatteredGradients final : public LeafGradients {
 public:
  /// `parts` must outlive this object. A bucket is sent once it has `bucket_bytes`.
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
  /// A pending bucket: the other ranks' data for this rank's parts, by rank.
  struct Arrival {
    std::size_t bucket;
    std::int64_t first_leaf;  // of rank 0
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
  std::size_t bytes_ = 0;                                    // of the bucket
  std::deque<Arrival> arrivals_;
  std::size_t buckets_ = 0, sent_ = 0;  // of this micro-batch; sent: number already sent
  std::int64_t leaves_ = 0, round_ = -1;
  bool is_in_leaf_ = false, counts_ = true;  // see begin_leaf
  std::vector<OrderedSum> sums_;             // of own parts, by bucket
  std::vector<Tensor> totals_;
  std::unordered_map<const Parameter*, Place> places_;  // of parts
};

}  // namespace hybrid_trainer
