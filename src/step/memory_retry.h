#pragma once

#include <cstdint>
#include <optional>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "src/config/stretches.h"
#include "src/sharding/step_retry.h"
#include "src/sharding/weight_parts.h"

namespace hybrid_trainer {

/// Into how many micro-batches a step's batch divides. Where memory is too short, there are more of
/// them from then on.
class MicroBatches {
 public:
  /// `stretches` must outlive it.
  MicroBatches(const HybridTrainerConfig& config, const Stretches& stretches);

  /// Of a batch as large as any, on all ranks.
  std::int64_t count() const { return count_; }
  /// Sets that; this rank alone has no more than others from now on.
  void set_count(std::int64_t count) {
    count_ = count;
    own_factor_ = 1;
  }
  /// Of this batch: of stretches' smaller ones as many as are no larger than those of the largest.
  std::int64_t of(const Batch& batch) const { return of(batch, own_factor_ * count_); }
  /// Number `index` of the batch's micro-batches.
  Batch part(const Batch& batch, std::int64_t index) const;
  /// Throws ShapeMismatch where the batch does not divide.
  void require_whole(const Batch& batch) const;

  /// Whether this batch's can be halved.
  bool can_halve(const Batch& batch) const { return halved(batch).has_value(); }
  /// Halves this batch's, of which there are more from then on: on all ranks, or on this one `alone`.
  void halve(const Batch& batch, bool alone);

 private:
  std::int64_t of(const Batch& batch, std::int64_t of_largest) const;
  std::optional<std::int64_t> halved(const Batch& batch) const;

  const std::vector<Stretch>& stretches_;
  std::int64_t count_;
  std::int64_t own_factor_ = 1;  // as many times more on this rank, for which others do not wait
};

/// What becomes of a step for which memory is too short: it begins again in smaller micro-batches, on
/// all ranks alike.
class MemoryRetry {
 public:
  /// All must outlive it; `ranks` and `parts` may be null.
  MemoryRetry(const HybridTrainerConfig& config, MicroBatches& micro_batches, Communicator* ranks,
              WeightParts* parts, const Stream& stream);
  bool is_one_of_several() const { return ranks_ != nullptr && ranks_->size() > 1; }
  /// Whether this rank may begin again by itself, where a step `concerns_others` or not.
  bool may_begin_again(bool concerns_others) const {
    return !is_one_of_several() || (!concerns_others && shares_stay_where_halved_);
  }
  /// Makes room for the batch, or says that its micro-batches are to be halved. Throws `error`, which
  /// is being handled, where neither is possible.
  StepRetry wait_for_way_out(const Batch& batch, const OutOfMemory& error, Optimizer& optimizer);
  /// Halves the batch's micro-batches if that is what is to be done.
  void begin_again(const Batch& batch, StepRetry retry, bool concerns_others);
  /// What the ranks want most. A collective; blocks.
  StepRetry wait_for_most_wanted(StepRetry here) const;

  /// What is computed of a micro-batch of a step that has this `retry`: where memory was too short on
  /// this rank, one example alone, for results that do not count, as what several ranks do together in
  /// it each has to come to.
  static Batch computed_part(const Batch& part, StepRetry retry) {
    return retry == StepRetry::kNone ? part : part.examples(0, 1);
  }
  /// Memory was too short for a micro-batch of the batch: it is to be computed again on one example,
  /// and so are the step's later ones. Then `retry` says so, for all to know at the end. Throws
  /// `error`, which is being handled, where that is no way out.
  void compute_less(const Batch& batch, const OutOfMemory& error, StepRetry& retry,
                    Optimizer& optimizer);

 private:
  MicroBatches& micro_batches_;
  Communicator* ranks_;
  WeightParts* parts_;
  const Stream& stream_;
  const bool has_activations_elsewhere_;
  /// Whether each rank has the same examples where micro-batches are halved on it alone.
  const bool shares_stay_where_halved_;
};

}  // namespace hybrid_trainer
