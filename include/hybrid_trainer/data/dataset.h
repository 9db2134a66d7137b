#pragma once

#include <span>

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

struct BatchShape {
  std::int64_t batch_size = 0;       // B, sequences in a batch
  std::int64_t sequence_length = 0;  // T, tokens in a sequence
  std::int64_t tokens() const { return batch_size * sequence_length; }
  bool operator==(const BatchShape&) const = default;
};

/// Batches of a different shape, at the beginning of a run.
struct BatchStage {
  std::int64_t batches = 0;
  BatchShape shape;
  bool operator==(const BatchStage&) const = default;
};

/// Destination of one example: its row of each tensor of a batch.
class ExampleMemory {
 public:
  struct Draw {
    std::uint64_t epoch;  // seeds the augmentation
    std::int64_t batch;
    std::int64_t piece;  // index of the piece, if batches contain pieces of one sequence
  };
  /// Selects row `row` of `batch`. `draw` is empty in an evaluation, which does not augment
  /// examples.
  ExampleMemory(Batch& batch, std::int64_t row, const std::optional<Draw>& draw = {})
      : batch_(&batch), row_(row), draw_(draw) {}
  std::int64_t row() const { return row_; }
  const std::optional<Draw>& draw() const { return draw_; }
  std::optional<std::uint64_t> epoch() const {
    return draw_ ? std::optional(draw_->epoch) : std::nullopt;
  }
  /// Return an empty span if the batch has no tensor of this name.
  std::span<float> floats(std::string_view name) const { return part<float>(name); }
  std::span<std::int32_t> labels(std::string_view name) const { return part<std::int32_t>(name); }
  /// Adds `count` targets, or the sum of their weights, to the divisor of the batch's loss. Without
  /// a call, all tokens count.
  void add_targets(double count) const { batch_->set_targets(batch_->targets() + count); }

 private:
  template <class T>
  std::span<T> part(std::string_view name) const {
    const Tensor* const all = batch_->find(name);
    if (all == nullptr) return {};
    const std::int64_t count = all->elements() / all->size(0);
    return {all->data<T>() + row_ * count, static_cast<std::size_t>(count)};
  }
  Batch* batch_;
  std::int64_t row_;
  std::optional<Draw> draw_;
};

/// Numbered examples with equal tensor shapes. An example depends only on its number and the draw.
class Dataset {
 public:
  static constexpr std::int64_t kPadding = -1;  // marks a row of padding in place of an example
  virtual ~Dataset() = default;
  /// Returns the number of examples per epoch, or 0 if the dataset is endless.
  virtual std::int64_t size() const = 0;
  /// Allocates a batch from the stream's pool. Throws OutOfMemory.
  virtual Batch empty_batch(std::int64_t examples, const Stream& stream) const = 0;
  /// Writes an example. Thread-safe. Throws DataError, or IoError if the example cannot be read.
  virtual void write(std::int64_t number, const ExampleMemory& memory) const = 0;
  /// Returns whether a batch may have rows of padding. For these, `write` is called with kPadding.
  virtual bool pads() const { return false; }
  /// Returns the third word of the random keys that shuffle epochs.
  virtual std::uint64_t order_key() const { return 0; }
  /// Returns whether runs count epochs, for example for checkpoint.every_epochs.
  virtual bool counts_epochs() const { return true; }
  /// Returns the length of the shorter last sequence, or 0 if there is none. Only evaluations read
  /// it, as example size().
  virtual std::int64_t rest() const { return 0; }

  /// Fills `memory` with consecutive examples, beginning with example `first`.
  Batch read(std::int64_t first, const Batch& memory) const;
};

/// Consecutive examples of a dataset, by default all.
struct DatasetPart {
  template <class Examples>
  DatasetPart(const std::shared_ptr<Examples>& all) : DatasetPart(all, 0, all->size()) {}
  DatasetPart(std::shared_ptr<const Dataset> all, std::int64_t begin, std::int64_t size)
      : dataset(std::move(all)), first(begin), count(size) {}
  std::shared_ptr<const Dataset> dataset;
  std::int64_t first, count;  // count 0: endless
};

/// Endless training batches. Each epoch visits each example once, in a new permutation. If the
/// dataset is smaller than a batch and supports padding, each batch is one epoch, padded to the
/// batch size. An endless dataset keeps its order. The contents of batch i depend only on i.
class ShuffledBatches {
 public:
  struct Settings {
    std::int64_t batch_size = 1;
    bool shuffle = true;  // false: the order of the dataset
    std::uint64_t seed = 0;
    /// Shapes of the first batches of a run. In a stage with sequences of T / n tokens, each
    /// sequence of T tokens is split into n pieces, which n consecutive batches use.
    std::vector<BatchStage> stages{};
    /// Replaces shuffling. Each row reads one equal part of the dataset in order.
    bool rows_continue = false;
  };
  /// Throws DataError if rows_continue is set and the part has fewer examples than a batch.
  ShuffledBatches(DatasetPart part, const Settings& settings);
  /// Allocates memory for any of the batches from the stream's pool. Throws OutOfMemory.
  Batch empty_batch(const Stream& stream) const {
    return part_.dataset->empty_batch(settings_.batch_size, stream);
  }
  /// Returns the number of epochs that the first `batches` batches complete. Returns 0 if epochs
  /// are not counted.
  std::int64_t epochs_in(std::int64_t batches) const;
  /// Writes batch `index` to `memory`, a batch of empty_batch, and returns it or a view of a part.
  /// Thread-safe. Throws Error if a stage's length does not divide the sequence length, if its
  /// number of batches is not a multiple of its pieces, or if its batches are larger than
  /// batch_size.
  Batch read(std::int64_t index, const Batch& memory) const;

 private:
  struct Position {
    BatchShape shape;        // shape of the batch
    std::int64_t taken = 0;  // number of examples used by earlier batches, over all epochs
    std::int64_t piece = 0;
  };
  struct Place {
    std::int64_t number;
    std::uint64_t epoch;
  };
  Position position_of(std::int64_t index, const BatchShape& whole) const;
  Place place_of(std::int64_t taken) const;
  DatasetPart part_;
  Settings settings_;
  std::int64_t places_;  // rows filled per epoch, including padding; 0: endless
};

/// Batches that contain each example once, in the order of the dataset. The last batch of full
/// sequences may be smaller. The dataset's rest() is a separate batch.
class OrderedBatches {
 public:
  /// Allocates one batch from the stream's pool.
  OrderedBatches(DatasetPart part, std::int64_t batch_size, const Stream& stream);
  std::int64_t batches() const;
  /// Returns batch `index`, which is at most as large as the first batch and valid until the next
  /// call.
  Batch batch(std::int64_t index) const;

 private:
  DatasetPart part_;
  std::int64_t rest_;
  Batch memory_;
};

/// Loads an endless sequence of training batches. The loader's position is the number of batches
/// taken from it. A background thread fills the next prefetch_depth batches while the caller uses
/// one batch.
class BatchLoader {
 public:
  /// Allocates prefetch_depth + 1 empty batches from the stream's pool, and nothing later.
  BatchLoader(ShuffledBatches source, std::int64_t prefetch_depth, const Stream& stream);
  ~BatchLoader();

  /// Returns the next batch; its memory is valid until the next call of next().
  Batch next();
  /// Sets the number of batches taken, for a resumed run.
  void seek(std::int64_t batch_index);
  const ShuffledBatches& source() const { return source_; }

 private:
  class Prefetch;
  ShuffledBatches source_;
  std::int64_t taken_ = 0;
  std::unique_ptr<Prefetch> prefetch_;
};

}  // namespace hybrid_trainer
