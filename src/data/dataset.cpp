#include "src/data/dataset.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

Batch Dataset::read(std::int64_t first, const Batch& memory) const {
  std::int64_t all = 0;
  for (std::int64_t at = 0; at < memory.size(); ++at) {
    write(first + at, ExampleMemory(memory, at));
    all += targets(first + at);
  }
  Batch batch = memory;
  batch.set_targets(static_cast<double>(all));
  return batch;
}

std::int64_t ShuffledBatches::epochs_in(std::int64_t batches) const {
  if (part_.count == 0) return 0;
  const std::int64_t size = settings_.batch_size;
  return batches * (part_.dataset->pads() ? std::min(size, part_.count) : size) / part_.count;
}

ShuffledBatches::Place ShuffledBatches::place_of(std::int64_t index, std::int64_t at) const {
  const std::int64_t size = settings_.batch_size, count = part_.count, taken = index * size + at;
  if (count == 0) return {part_.first + taken, 0};
  const bool is_epoch = part_.dataset->pads() && size >= count;
  const std::int64_t place = is_epoch ? at : taken % count;
  const auto epoch = static_cast<std::uint64_t>(is_epoch ? index : taken / count);
  if (place >= count) return {Dataset::kPadding, epoch};
  if (!settings_.shuffle) return {part_.first + place, epoch};
  const std::uint64_t number =
      random_permuted({settings_.seed, epoch, part_.dataset->order_key()},
                      static_cast<std::uint64_t>(place), static_cast<std::uint64_t>(count));
  return {part_.first + static_cast<std::int64_t>(number), epoch};
}

Batch ShuffledBatches::read(std::int64_t index, const Batch& memory) const {
  require(memory.size() == settings_.batch_size, "a batch has the settings' size");
  std::int64_t all = 0;
  for (std::int64_t at = 0; at < memory.size(); ++at) {
    const auto [number, epoch] = place_of(index, at);
    part_.dataset->write(number, ExampleMemory(memory, at, epoch));
    all += number == Dataset::kPadding ? 0 : part_.dataset->targets(number);
  }
  Batch batch = memory;
  batch.set_targets(static_cast<double>(all));
  return batch;
}

Batch OrderedBatches::batch(std::int64_t index) {
  require(index >= 0 && index < batches(), "an evaluation has no batch of this number");
  const std::int64_t first = index * memory_.size();
  return part_.dataset->read(part_.first + first,
                             memory_.examples(0, std::min(memory_.size(), part_.count - first)));
}

}  // namespace hybrid_trainer
