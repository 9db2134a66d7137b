#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "hybrid_trainer/distributed/ordered_sum.h"
#include "src/sharding/leaf_gradients.h"
#include "src/sharding/weight_parts.h"

namespace hybrid_trainer {

/// Each rank takes contiguous micro-batches and sums what it can of them. While backward of its last
/// one goes on, the sums of all are summed, a bucket of parameters at a time, as their gradients are
/// complete. The gradient of a micro-batch is one f32 tensor, in which the parameters follow one
/// another; the sum takes the place of the first of them.
class OrderedGradients final : public LeafGradients {
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

  /// From the next micro-batch on reduce() concerns no other rank: the sum is of this one's own.
  void keep_own(bool keeps) { keeps_own_ = keeps; }
  /// The sum itself, which gradient() has no more; and another one that it has from now on.
  Tensor take() { return std::exchange(values_, {}); }
  void show(Tensor values) { values_ = std::move(values); }
  /// With parts, this rank's of such a sum, as gradient() and part_of have them of those.
  Tensor own_parts_of(const Tensor& whole) const;
  /// What ranks sum together of one, and who keeps what.
  std::vector<SharedElements> shared_elements() const;
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  /// A parameter's part of such a sum; undefined where it has none.
  Tensor part_of(const Tensor& sum, const Parameter& parameter) const;
  std::int64_t elements() const { return elements_; }  // of one
  /// Where a parameter begins in one.
  std::int64_t first_element(const Parameter& parameter) const { return first_.at(&parameter); }

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

}  // namespace hybrid_trainer
