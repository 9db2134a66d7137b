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

/// Number of batches of another shape than the rest of a run.
struct BatchStretch {
  std::int64_t batches = 0;
  BatchShape shape;
  bool operator==(const BatchStretch&) const = default;
};

/// Memory of one example of a batch.
class ExampleMemory {
 public:
  /// Training batch that an example is drawn for.
  struct Draw {
    std::uint64_t epoch;  // whose examples may be altered
    std::int64_t batch;
    std::int64_t piece;  // of the example's sequence, where batches of a stretch share it
  };
  /// `draw`: none where examples are measured as they are.
  ExampleMemory(Batch& batch, std::int64_t row, const std::optional<Draw>& draw = {})
      : batch_(&batch), row_(row), draw_(draw) {}
  std::int64_t row() const { return row_; }
  const std::optional<Draw>& draw() const { return draw_; }
  std::optional<std::uint64_t> epoch() const {
    return draw_ ? std::optional(draw_->epoch) : std::nullopt;
  }
  /// Empty if the batch has no tensor of this name.
  std::span<float> floats(std::string_view name) const { return part<float>(name); }
  std::span<std::int32_t> labels(std::string_view name) const { return part<std::int32_t>(name); }
  /// Adds targets to the batch, by whose sum its loss is divided; without any: all of its tokens.
  void add_targets(std::int64_t count) const {
    batch_->set_targets(batch_->targets() + static_cast<double>(count));
  }

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

/// Examples of one form, by number. What an example holds follows from its number and the draw alone,
/// so that a resumed run and all ranks see the same ones.
class Dataset {
 public:
  static constexpr std::int64_t kPadding = -1;  // number of a place without an example
  virtual ~Dataset() = default;
  /// Examples of an epoch; 0: they have no end.
  virtual std::int64_t size() const = 0;
  /// Memory for a batch, from the stream's pool. Throws OutOfMemory.
  virtual Batch empty_batch(std::int64_t examples, const Stream& stream) const = 0;
  /// Writes an example. May run in several threads. Throws DataError, IoError if it cannot be read.
  virtual void write(std::int64_t number, const ExampleMemory& memory) const = 0;
  /// Whether a batch may have places without an example, which `write` then fills as kPadding.
  virtual bool pads() const { return false; }
  /// Third word of the random keys by which epochs are shuffled.
  virtual std::uint64_t order_key() const { return 0; }
  /// Whether runs count its epochs, as checkpoint.every_epochs does.
  virtual bool counts_epochs() const { return true; }
  /// Tokens of a shorter sequence, number size(), which only evaluations have; 0: there is none.
  virtual std::int64_t rest() const { return 0; }

  /// Writes the examples from number `first` on into all of `memory`.
  Batch read(std::int64_t first, const Batch& memory) const;
};

/// Consecutive examples of a dataset; by default all.
struct DatasetPart {
  template <class Examples>
  DatasetPart(const std::shared_ptr<Examples>& all) : DatasetPart(all, 0, all->size()) {}
  DatasetPart(std::shared_ptr<const Dataset> all, std::int64_t begin, std::int64_t size)
      : dataset(std::move(all)), first(begin), count(size) {}
  std::shared_ptr<const Dataset> dataset;
  std::int64_t first, count;  // count 0: without end
};

/// Endless training batches. Each epoch has each example once, in a permutation of its own. If a dataset
/// that pads has fewer examples than a batch, each batch is an epoch, and its other places are padding.
/// Examples without end come in the order of their numbers. What batch i holds follows from i alone.
class ShuffledBatches {
 public:
  struct Settings {
    std::int64_t batch_size = 1;
    bool shuffle = true;  // else each epoch has the order of the dataset
    std::uint64_t seed = 0;
    /// Batches that a run begins with. A stretch of sequences of T / n tokens takes each batch's
    /// sequences of T in n pieces, of which batch after batch holds the next one.
    std::vector<BatchStretch> stretches{};
    /// In place of shuffling: each row of a batch goes in order through a part of the dataset of its
    /// own. Examples that are left over are not used.
    bool rows_go_on = false;
  };
  /// Throws DataError if rows are to go on and the part has fewer examples than a batch has rows.
  ShuffledBatches(DatasetPart part, const Settings& settings);
  /// Memory for any of its batches, from the stream's pool. Throws OutOfMemory.
  Batch empty_batch(const Stream& stream) const {
    return part_.dataset->empty_batch(settings_.batch_size, stream);
  }
  /// Whole epochs in the first `batches`; 0 where epochs are not counted.
  std::int64_t epochs_in(std::int64_t batches) const;
  /// Writes batch `index` into memory of empty_batch and returns it: all of that memory or, of a
  /// smaller batch, views of a part. May run in several threads. Throws Error where a stretch's
  /// sequences are no whole part of the longest, its batches no multiple of the pieces, or its batch
  /// larger than the settings' own.
  Batch read(std::int64_t index, const Batch& memory) const;

 private:
  struct Beginning {
    BatchShape shape;        // of a batch
    std::int64_t taken = 0;  // examples that the batches before it used up, over all epochs
    std::int64_t piece = 0;
  };
  struct Place {
    std::int64_t number;
    std::uint64_t epoch;
  };
  Beginning beginning_of(std::int64_t index, const BatchShape& whole) const;
  Place place_of(std::int64_t taken) const;
  DatasetPart part_;
  Settings settings_;
  std::int64_t places_;  // of an epoch; 0: without end
};

/// Each example once, in the order of the dataset. The last batch of whole sequences may be smaller; the
/// dataset's rest is a batch of its own.
class OrderedBatches {
 public:
  /// Takes one batch from the stream's pool.
  OrderedBatches(DatasetPart part, std::int64_t batch_size, const Stream& stream);
  std::int64_t batches() const;
  /// Batch `index`, whose size is at most the first one's; its memory is valid until the next call.
  Batch batch(std::int64_t index) const;

 private:
  DatasetPart part_;
  std::int64_t rest_;
  Batch memory_;
};

/// An endless sequence of training batches, of which the position is just the number taken. A
/// background thread fills the next prefetch_depth batches while one is in use.
class BatchLoader {
 public:
  /// Takes prefetch_depth + 1 of the source's empty batches from the stream's pool; allocates nothing
  /// later.
  BatchLoader(ShuffledBatches source, std::int64_t prefetch_depth, const Stream& stream);
  ~BatchLoader();

  /// The next batch; its memory is valid until the next call of next().
  Batch next();
  /// Makes `batch_index` the number of batches taken: the next one is exactly that of an
  /// uninterrupted run.
  void seek(std::int64_t batch_index);
  const ShuffledBatches& source() const { return source_; }

 private:
  class Prefetch;
  ShuffledBatches source_;
  std::int64_t taken_ = 0;
  std::unique_ptr<Prefetch> prefetch_;
};

}  // namespace hybrid_trainer
