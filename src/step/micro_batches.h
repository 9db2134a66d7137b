#pragma once

#include <cstdint>
#include <optional>

#include "hybrid_trainer/core/batch.h"
#include "src/config/stretches.h"

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

}  // namespace hybrid_trainer
