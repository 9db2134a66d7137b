#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/data/batch_order.h"
#include "hybrid_trainer/data/data_config.h"
#include "hybrid_trainer/data/token_dataset.h"

namespace hybrid_trainer {

/// Where training batches come from: what batch i holds follows from i alone.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Memory for any of its batches, from the stream's pool. Throws OutOfMemory.
  virtual Batch empty_batch(const Stream& stream) const = 0;
  /// Whole epochs in the first `batches`; 0 where epochs are not counted.
  virtual std::int64_t epochs_in(std::int64_t /*batches*/) const { return 0; }
  /// Writes batch `batch_index` into memory of empty_batch and returns it: all of that memory or, of
  /// a smaller batch, views of a part. May run in several threads.
  virtual Batch read(std::int64_t batch_index, const Batch& memory) const = 0;
};

/// Batches of windows of a dataset, which must outlive it; BatchOrder says what batch i holds.
class WindowBatches final : public BatchSource {
 public:
  WindowBatches(const TokenDataset& dataset, const BatchSettings& settings);
  Batch empty_batch(const Stream& stream) const override {
    return empty_token_batch({largest_.batch_size, largest_.sequence_length}, false, stream);
  }
  Batch read(std::int64_t batch_index, const Batch& memory) const override;
  std::int64_t windows_per_epoch() const { return order_.windows_per_epoch(); }

 private:
  const TokenDataset* dataset_;
  bool goes_on_;
  BatchShape largest_;
  BatchOrder order_;
};

/// An endless sequence of training batches, of which the position is just the number taken. A
/// background thread fills the next prefetch_depth batches while one is in use.
class BatchLoader {
 public:
  /// Takes prefetch_depth + 1 of the source's empty batches from the stream's pool; allocates nothing
  /// later.
  BatchLoader(std::unique_ptr<const BatchSource> source, std::int64_t prefetch_depth,
              const Stream& stream);
  /// Loads WindowBatches of the dataset.
  BatchLoader(const TokenDataset& dataset, const BatchSettings& settings, const Stream& stream)
      : BatchLoader(std::make_unique<WindowBatches>(dataset, settings), settings.prefetch_depth,
                    stream) {}
  ~BatchLoader();

  /// The next batch; its memory is valid until the next call of next().
  Batch next();
  /// Makes `batch_index` the number of batches taken: the next one is exactly that of an
  /// uninterrupted run.
  void seek(std::int64_t batch_index);
  const BatchSource& source() const { return *source_; }

 private:
  class Prefetch;
  std::unique_ptr<const BatchSource> source_;
  std::int64_t taken_ = 0;
  std::unique_ptr<Prefetch> prefetch_;
};

/// Batches over which a loss is measured.
class EvaluationBatches {
 public:
  virtual ~EvaluationBatches() = default;
  virtual std::int64_t batches() const = 0;
  /// Batch `index`, whose size is at most the first one's; its memory is valid until the next call.
  virtual Batch batch(std::int64_t index) = 0;
};

/// All non-overlapping windows of T tokens of a split, in order from token 0, and the shorter window
/// that is left at its end: each token but the first is a target once. The last batch of whole windows
/// may be smaller; the shorter window is a batch of its own behind it.
class EvaluationWindows final : public EvaluationBatches {
 public:
  /// Takes one batch from the stream's pool. Throws DataError if the split has fewer than 2 tokens.
  EvaluationWindows(const TokenDataset& dataset, std::int64_t batch_size,
                    std::int64_t sequence_length, const Stream& stream);
  std::int64_t batches() const override { return whole_batches() + (rest_ > 0 ? 1 : 0); }
  /// Predicted tokens in all windows.
  std::int64_t tokens() const { return windows_ * length_ + rest_; }
  Batch batch(std::int64_t index) override;

 private:
  std::int64_t whole_batches() const { return (windows_ + batch_size_ - 1) / batch_size_; }
  const TokenDataset* dataset_;
  std::int64_t batch_size_;
  std::int64_t length_;   // of a whole window
  std::int64_t windows_;  // that are whole
  std::int64_t rest_;     // length of the last one, 0 where there is none
  Batch memory_;
};

/// Another source's batches for a model that sees both sides of a token: chosen tokens are their own
/// targets, all others have none. Which are chosen, and what they become, follows from seed, batch
/// and place alone. Takes no memory beside the source's.
class MaskedBatches final : public BatchSource {
 public:
  MaskedBatches(std::unique_ptr<const BatchSource> source, const MaskSettings& settings)
      : source_(std::move(source)), settings_(settings) {}
  Batch empty_batch(const Stream& stream) const override { return source_->empty_batch(stream); }
  std::int64_t epochs_in(std::int64_t batches) const override {
    return source_->epochs_in(batches);
  }
  Batch read(std::int64_t batch_index, const Batch& memory) const override;

 private:
  std::unique_ptr<const BatchSource> source_;
  MaskSettings settings_;
};

/// Masks the batches of an evaluation. What is masked of a sequence follows from its tokens
/// alone, so that runs and steps are measured on the same masks, whatever their seeds and batches.
class MaskedEvaluation final : public EvaluationBatches {
 public:
  /// settings.seed has no effect.
  MaskedEvaluation(std::unique_ptr<EvaluationBatches> batches, const MaskSettings& settings)
      : batches_(std::move(batches)), settings_(settings) {}
  std::int64_t batches() const override { return batches_->batches(); }
  Batch batch(std::int64_t index) override;

 private:
  std::unique_ptr<EvaluationBatches> batches_;
  MaskSettings settings_;
};

}  // namespace hybrid_trainer
