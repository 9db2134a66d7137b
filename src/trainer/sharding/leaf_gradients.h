#pragma once

#include <unordered_set>
#include <utility>

#include "hybrid_trainer/nn/gradient_sink.h"
#include "phases/engine.h"
#include "src/distributed/communicator.h"
#include "src/distributed/ordered_sum.h"
#include "src/trainer/sharding/weight_parts.h"

namespace hybrid_trainer {

/// What several ranks do with a step for which memory was too short on one of them, once all have
/// come to its end; of what the ranks want, the last of these.
enum class StepRetry : char {
  kNone,    // it fits
  kSame,    // the rank has more memory now
  kHalved,  // in micro-batches of half the size
};

/// The gradient of a step over ranks, of which one alone is a case. The micro-batches' gradients are
/// leaves of the tree of src/distributed/ordered_sum.h, summed in its order, so that the bits are the
/// same on any number of ranks.
class LeafGradients : public GradientSink {
 public:
  explicit LeafGradients(Communicator& ranks) : ranks_(ranks) {}
  Communicator& ranks() const { return ranks_; }
  /// Whether other ranks wait for this one in a step.
  virtual bool concern_others() const { return ranks_.size() > 1; }
  /// Micro-batches of a step of `leaves` that are a rank's, in its order.
  virtual std::vector<std::int64_t> leaves_of_rank(std::int64_t leaves, int rank) const = 0;
  /// Of a step's micro-batches, this rank's, from 0 to 1.
  double own_share(std::int64_t leaves) const {
    const auto own = leaves_of_rank(leaves, ranks_.rank()).size();
    return static_cast<double>(own) / static_cast<double>(leaves);
  }
  /// Micro-batches that every rank computes: more than its own where ranks wait for each other in
  /// each; those do not count.
  virtual std::int64_t rounds(std::int64_t leaves) const = 0;
  /// What is written from now on is of one micro-batch: number `leaf` of `leaves`, or one that does
  /// not count. Called again before end_leaf, and from then on until free(), the sum does not count:
  /// what others wait for is sent as before, but not what was sent already. Throws OutOfMemory.
  virtual void begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) = 0;
  /// It is written. Throws Error where a parameter got no gradient, which another rank could not
  /// know.
  virtual void end_leaf() = 0;
  /// gradient() is of the sum over all micro-batches of all ranks from now on. A collective.
  virtual void reduce(std::int64_t leaves) = 0;
  /// In place of reduce, where the sum does not count: what is under way gets to its end.
  virtual void settle() {}
  /// Forgets what is there.
  virtual void free() = 0;

  /// Mean of the losses of all ranks' micro-batches, of which `losses` are this rank's, (1) f64
  /// each, in the order of all. `retry` becomes what the ranks want. A collective; blocks.
  double wait_for_mean_of(const std::vector<Tensor>& losses, std::int64_t leaves, StepRetry& retry,
                          const Stream& stream) const;

 protected:
  /// See end_leaf.
  static void check_all_got_one(const std::vector<Parameter*>& parameters);

 private:
  Communicator& ranks_;
};

/// One rank alone, where a complete gradient goes on to another sink at once: each weight's
/// micro-batches are summed by themselves, in the tree's order. What is summed so far lies in the
/// memory of `home`, and one micro-batch's gradient on the device.
class LoneGradients final : public LeafGradients {
 public:
  /// All must outlive it. `total` is told of a weight's gradient as that of one micro-batch.
  LoneGradients(const std::vector<Parameter*>& parameters, Communicator& alone, GradientSink& total,
                const Stream& home, const Stream& stream);
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
  void add_complete_ones();
  void add(const Parameter& parameter);
  bool is_last() const { return leaf_ + 1 == leaves_; }
  void add_partial(const Tensor& to, std::vector<Tensor>& partials) const;

  const std::vector<Parameter*>& parameters_;
  GradientSink& total_;
  const Stream& home_;
  const Stream& stream_;
  std::int64_t leaf_ = 0, leaves_ = 1;
  std::unordered_map<const Parameter*, Tensor> held_;  // of this micro-batch, but for the last one
  std::unordered_map<const Parameter*, std::vector<Tensor>> partials_;  // nodes so far, at home
  /// Summed when the next one is begun: ready is told by a destructor, which must not throw.
  std::vector<const Parameter*> complete_;
  std::unordered_set<const Parameter*> written_;  // by any micro-batch
};

/// Each rank takes contiguous micro-batches and sums what it can of them. While backward of its last
/// one goes on, the sums of all are summed, a bucket of parameters at a time, as their gradients are
/// complete. The gradient of a micro-batch is one f32 tensor, in which the parameters follow one
/// another; the sum takes the place of the first of them.
class OrderedGradients final : public LeafGradients, public GradientSums {
 public:
  /// All must outlive it; the parameters are the trainable ones. With `parts` a rank keeps the sum
  /// of its own parts alone, and has gradients of those; a bucket is a group of theirs then, else it
  /// has at least `bucket_bytes`.
  OrderedGradients(const std::vector<Parameter*>& parameters, Communicator& ranks,
                   const WeightParts* parts, std::int64_t bucket_bytes, const Stream& stream);
  bool concern_others() const override { return ranks().size() > 1 && !keeps_own_; }
  std::vector<std::int64_t> leaves_of_rank(std::int64_t leaves, int rank) const override;
  std::int64_t rounds(std::int64_t leaves) const override;
  void begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) override;
  void end_leaf() override;
  void reduce(std::int64_t leaves) override;
  void settle() override;
  void free() override;
  Tensor gradient(const Parameter& parameter) const override { return part_of(values_, parameter); }
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void ready(const Parameter& parameter, const Stream& stream) override;

  Communicator& ranks() const override { return LeafGradients::ranks(); }
  void keep_own(bool keeps) override { keeps_own_ = keeps; }
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
    std::vector<Shard> shards;  // of them, by rank
    std::int64_t own_first;     // element of this rank's values where its shard begins
    std::size_t parameters = 0, missing = 0;  // whose gradients are not complete yet
  };
  void make_bucket(const WeightGroup& group);
  std::vector<Shard> shards_of(const WeightGroup& group, const Shard& elements) const;
  OrderedSum sum_of(const Bucket& bucket) const;
  void begin_complete_buckets();
  void begin(const Bucket& bucket);

  const std::vector<Parameter*>& parameters_;
  const WeightParts* parts_;
  const Stream& stream_;
  std::unordered_map<const Parameter*, std::int64_t> first_;  // element of each parameter
  std::int64_t elements_ = 0, own_elements_ = 0;              // of all, and of this rank's shards
  std::vector<Bucket> buckets_;                               // as backward comes to them
  std::unordered_map<const Parameter*, std::size_t> bucket_of_;
  OrderedSum sum_;
  std::int64_t leaf_ = 0, leaves_ = 1;  // the one being written, and how many there are
  bool is_last_ = false;                // of this rank's, which waits for others'
  bool keeps_own_ = false;
  /// The first that is not begun, which it is when the next gradient is written: ready is told by a
  /// destructor, which must not throw. One after the other, so that all ranks begin them alike.
  std::size_t next_ = 0;
  std::vector<std::shared_ptr<OrderedReduction>> reductions_;  // under way
  CollectiveTicket last_begun_ = 0;
  Tensor values_;  // of one micro-batch; then of all, or of this rank's shard
};

/// Micro-batch j is computed by rank j mod R, and while its backward goes on, each gradient that is
/// complete goes to the ranks that own parts of it, a bucket at a time, and is freed. So a rank
/// holds sums of its own parts, the bucket being filled, and those on their way. Ranks without a micro-batch in the last round compute
/// their last one again and send nothing, since in each bucket all meet.
class ScatteredGradients final : public LeafGradients {
 public:
  /// `parts` must outlive it. A bucket is sent when it has `bucket_bytes`.
  ScatteredGradients(const WeightParts& parts, std::int64_t bucket_bytes, const Stream& stream);
  std::vector<std::int64_t> leaves_of_rank(std::int64_t leaves, int rank) const override;
  std::int64_t rounds(std::int64_t leaves) const override;
  void begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) override;
  void end_leaf() override;
  void reduce(std::int64_t leaves) override;
  void settle() override;
  void free() override;
  /// Of a whole weight while its backward goes on; of a part, once reduced.
  Tensor gradient(const Parameter& parameter) const override;
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void ready(const Parameter& parameter, const Stream& stream) override;

 private:
  struct Place {
    std::size_t bucket;
    std::int64_t first;  // element of it
  };
  /// A bucket on its way: what other ranks send of this rank's parts, by rank.
  struct Arrival {
    std::size_t bucket;
    std::int64_t first_leaf;  // of rank 0
    Tensor sent, received;
    std::vector<std::int64_t> counts;
    CollectiveTicket job;
  };
  static constexpr std::size_t kMostOnTheirWay = 2;
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
  std::vector<std::size_t> bucket_;                          // whose gradients are complete
  std::size_t bytes_ = 0;                                    // of them
  std::deque<Arrival> arrivals_;
  std::size_t buckets_ = 0, sent_ = 0;  // of this micro-batch, and of them those that are sent
  std::int64_t leaves_ = 0, round_ = -1;
  bool is_in_leaf_ = false, counts_ = true;  // see begin_leaf
  std::vector<OrderedSum> sums_;             // of own parts, by bucket
  std::vector<Tensor> totals_;
  std::unordered_map<const Parameter*, Place> places_;  // of parts
};

}  // namespace hybrid_trainer
