#pragma once

#include <cstdint>
#include <memory>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/data/batch_order.h"
#include "hybrid_trainer/data/token_dataset.h"

namespace hybrid_trainer {

/// An endless sequence of training batches. BatchOrder says what batch i holds, so that the position
/// is just the number of batches taken. A background thread fills the next prefetch_depth batches
/// while one is in use.
class BatchLoader {
 public:
  /// Takes prefetch_depth + 1 batches, each two tensors (B, T) i32 of the largest shape, from the
  /// stream's pool; allocates nothing later. The dataset must outlive the loader.
  BatchLoader(const TokenDataset& dataset, const BatchSettings& settings, const Stream& stream);
  ~BatchLoader();

  /// The next batch; its memory is valid until the next call of next().
  Batch next();
  /// Makes `batch_index` the number of batches taken: the next one is exactly that of an
  /// uninterrupted run.
  void seek(std::int64_t batch_index);
  std::int64_t batches_taken() const { return taken_; }
  std::int64_t windows_per_epoch() const;
  /// Writes batch `batch_index` into the caller's batch of the same shape; may run concurrently
  /// with next().
  void read(std::int64_t batch_index, const Batch& batch) const;

 private:
  class Prefetch;
  const TokenDataset* dataset_;
  BatchSettings settings_;
  BatchOrder order_;
  std::int64_t taken_ = 0;
  std::unique_ptr<Prefetch> prefetch_;
};

/// All non-overlapping windows of T tokens of a split, in order from token 0; the last batch may be
/// smaller. A tail shorter than T is dropped, unless the split has no full window: then it is the
/// only window, with length() < T.
class EvaluationWindows {
 public:
  /// Takes one batch from the stream's pool. Throws DataError if the split has fewer than 2 tokens.
  EvaluationWindows(const TokenDataset& dataset, std::int64_t batch_size,
                    std::int64_t sequence_length, const Stream& stream);
  std::int64_t batches() const { return (windows_ + batch_size_ - 1) / batch_size_; }
  std::int64_t windows() const { return windows_; }
  std::int64_t length() const { return length_; }
  /// Predicted tokens in all windows.
  std::int64_t tokens() const { return windows_ * length_; }
  /// Batch `index`; its memory is valid until the next call.
  Batch batch(std::int64_t index);

 private:
  const TokenDataset* dataset_;
  std::int64_t batch_size_;
  std::int64_t length_;
  std::int64_t windows_;
  Batch memory_;
};

}  // namespace hybrid_trainer
