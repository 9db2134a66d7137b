#pragma once

#include <span>

#include "hybrid_trainer/data/batch_loader.h"

namespace hybrid_trainer {

/// Memory of one example of a batch.
class ExampleMemory {
 public:
  /// `epoch`: of training, whose examples may be altered; none where they are measured as they are.
  ExampleMemory(const Batch& batch, std::int64_t at, std::optional<std::uint64_t> epoch = {})
      : batch_(&batch), at_(at), epoch_(epoch) {}
  const std::optional<std::uint64_t>& epoch() const { return epoch_; }
  /// Empty if the batch has no tensor of this name.
  std::span<float> floats(std::string_view name) const { return part<float>(name); }
  std::span<std::int32_t> labels(std::string_view name) const { return part<std::int32_t>(name); }

 private:
  template <class T>
  std::span<T> part(std::string_view name) const {
    const Tensor* const all = batch_->find(name);
    if (all == nullptr) return {};
    const std::int64_t count = all->elements() / all->size(0);
    return {all->data<T>() + at_ * count, static_cast<std::size_t>(count)};
  }
  const Batch* batch_;
  std::int64_t at_;
  std::optional<std::uint64_t> epoch_;
};

/// Examples of one form, by number. What an example holds follows from its number and the epoch alone,
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
  /// Targets of an example, by whose sum the loss of a batch is divided; 0: all of its tokens.
  virtual std::int64_t targets(std::int64_t /*number*/) const { return 0; }
  /// Whether a batch may have places without an example, which `write` then fills as kPadding.
  virtual bool pads() const { return false; }
  /// Third word of the random keys by which epochs are shuffled.
  virtual std::uint64_t order_key() const { return 0; }

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
/// Examples without end come in the order of their numbers.
class ShuffledBatches final : public BatchSource {
 public:
  struct Settings {
    std::int64_t batch_size = 1;
    bool shuffle = true;  // else each epoch has the order of the dataset
    std::uint64_t seed = 0;
  };
  ShuffledBatches(DatasetPart part, const Settings& settings)
      : part_(std::move(part)), settings_(settings) {}
  Batch empty_batch(const Stream& stream) const override {
    return part_.dataset->empty_batch(settings_.batch_size, stream);
  }
  std::int64_t epochs_in(std::int64_t batches) const override;
  Batch read(std::int64_t index, const Batch& memory) const override;

 private:
  struct Place {
    std::int64_t number;
    std::uint64_t epoch;
  };
  Place place_of(std::int64_t index, std::int64_t at) const;
  DatasetPart part_;
  Settings settings_;
};

/// Each example once, in the order of the dataset. The last batch may be smaller.
class OrderedBatches final : public EvaluationBatches {
 public:
  /// Takes one batch from the stream's pool.
  OrderedBatches(DatasetPart part, std::int64_t batch_size, const Stream& stream)
      : part_(std::move(part)),
        memory_(part_.dataset->empty_batch(std::min(batch_size, part_.count), stream)) {}
  std::int64_t batches() const override {
    return (part_.count + memory_.size() - 1) / memory_.size();
  }
  Batch batch(std::int64_t index) override;

 private:
  DatasetPart part_;
  Batch memory_;
};

}  // namespace hybrid_trainer
