#include "hybrid_trainer/data/dataset.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

namespace {

/// Returns views of the first elements of each tensor in another shape. A tensor with N elements
/// for T tokens gets N/T elements for each token of the new shape, or fewer if it has not enough.
Batch shaped(const Batch& batch, const BatchShape& shape) {
  const std::int64_t length = batch.tokens_per_example();
  std::vector<NamedTensor> parts;
  for (const NamedTensor& part : batch.tensors()) {
    const std::int64_t all = part.tensor.elements(), columns = all / batch.size();
    const std::int64_t own =
        std::min((columns * shape.sequence_length + length - 1) / length, all / shape.batch_size);
    parts.push_back(
        {part.name,
         part.tensor.view({all}).rows(0, shape.batch_size * own).view({shape.batch_size, own})});
  }
  return Batch(std::move(parts), shape.sequence_length);
}

std::int64_t places_of_epoch(const DatasetPart& part, const ShuffledBatches::Settings& settings) {
  const std::int64_t count = part.count, size = settings.batch_size;
  if (!settings.rows_continue || count == 0)
    return count > 0 && part.dataset->pads() ? std::max(count, size) : count;
  if (count < size)
    throw DataError(concat(
        "the data has ", count,
        " sequences, but data.carry_state needs at least one for each of the ", size,
        " rows of a batch; use more text, or lower data.sequence_length or data.batch_size"));
  return count - count % size;
}

}  // namespace

Batch Dataset::read(std::int64_t first, const Batch& memory) const {
  Batch batch = memory;
  batch.set_targets(0);
  for (std::int64_t row = 0; row < batch.size(); ++row)
    write(first + row, ExampleMemory(batch, row));
  return batch;
}

ShuffledBatches::ShuffledBatches(DatasetPart part, const Settings& settings)
    : part_(std::move(part)), settings_(settings), places_(places_of_epoch(part_, settings)) {}

std::int64_t ShuffledBatches::epochs_in(std::int64_t batches) const {
  if (places_ == 0 || !part_.dataset->counts_epochs()) return 0;
  return batches * settings_.batch_size / places_;
}

ShuffledBatches::Position ShuffledBatches::position_of(std::int64_t index,
                                                       const BatchShape& whole) const {
  std::int64_t taken = 0;
  for (const auto& [batches, shape] : settings_.stages) {
    require(shape.sequence_length >= 1 && whole.sequence_length % shape.sequence_length == 0,
            "a stage's sequence length must divide the longest one");
    const std::int64_t pieces = whole.sequence_length / shape.sequence_length;
    require(batches >= 0 && batches % pieces == 0, "a stage must use all pieces of its sequences");
    require(shape.batch_size >= 1 && shape.tokens() <= whole.tokens(),
            "a stage's batch must not have more tokens than the largest one");
    if (index < batches) return {shape, taken + index / pieces * shape.batch_size, index % pieces};
    taken += batches / pieces * shape.batch_size;
    index -= batches;
  }
  return {whole, taken + index * whole.batch_size, 0};
}

ShuffledBatches::Place ShuffledBatches::place_of(std::int64_t taken) const {
  if (places_ == 0) return {part_.first + taken, 0};
  const std::int64_t place = taken % places_, rows = settings_.batch_size;
  const auto epoch = static_cast<std::uint64_t>(taken / places_);
  std::int64_t number = place;
  if (place >= part_.count) return {Dataset::kPadding, epoch};
  if (settings_.rows_continue) {
    number = place % rows * (places_ / rows) + place / rows;
  } else if (settings_.shuffle) {
    number = static_cast<std::int64_t>(random_permuted(
        {settings_.seed, epoch, part_.dataset->order_key()}, static_cast<std::uint64_t>(place),
        static_cast<std::uint64_t>(part_.count)));
  }
  return {part_.first + number, epoch};
}

Batch ShuffledBatches::read(std::int64_t index, const Batch& memory) const {
  require(memory.size() == settings_.batch_size, "the batch size must match the settings");
  const BatchShape whole{memory.size(), memory.tokens_per_example()};
  const Position position = position_of(index, whole);
  Batch batch = position.shape == whole ? memory : shaped(memory, position.shape);
  batch.set_targets(0);
  batch.set_continues(settings_.rows_continue && places_ > 0 && position.taken % places_ != 0);
  for (std::int64_t row = 0; row < batch.size(); ++row) {
    const auto [number, epoch] = place_of(position.taken + row);
    const ExampleMemory::Draw draw{epoch, index, position.piece};
    part_.dataset->write(number, ExampleMemory(batch, row, draw));
  }
  return batch;
}

OrderedBatches::OrderedBatches(DatasetPart part, std::int64_t batch_size, const Stream& stream)
    : part_(std::move(part)),
      rest_(part_.first + part_.count == part_.dataset->size() ? part_.dataset->rest() : 0),
      memory_(part_.dataset->empty_batch(std::min(batch_size, part_.count), stream)) {}

std::int64_t OrderedBatches::batches() const {
  return (part_.count + memory_.size() - 1) / memory_.size() + (rest_ > 0 ? 1 : 0);
}

Batch OrderedBatches::batch(std::int64_t index) const {
  require(index >= 0 && index < batches(), "the index of the evaluation batch is out of range");
  const std::int64_t first = std::min(index * memory_.size(), part_.count);
  const std::int64_t left = part_.count - first;
  return part_.dataset->read(
      part_.first + first,
      left > 0 ? memory_.examples(0, std::min(memory_.size(), left)) : shaped(memory_, {1, rest_}));
}

}  // namespace hybrid_trainer
