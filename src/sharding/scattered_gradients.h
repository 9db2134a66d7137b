#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "hybrid_trainer/distributed/ordered_sum.h"
#include "src/sharding/leaf_gradients.h"
#include "src/sharding/weight_parts.h"

namespace hybrid_trainer {

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
