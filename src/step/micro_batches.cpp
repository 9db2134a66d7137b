#include "src/step/micro_batches.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

MicroBatches::MicroBatches(const HybridTrainerConfig& config, const Stretches& stretches)
    : stretches_(stretches.all()), count_(config.gradient_accumulation.micro_batches) {}

std::int64_t MicroBatches::of(const Batch& batch, std::int64_t of_largest) const {
  if (stretches_.size() == 1) return of_largest;
  const std::int64_t most_tokens = stretches_.back().batch.tokens() / of_largest;
  std::int64_t count = 1;
  while (batch.size() % count != 0 || batch.tokens() / count > most_tokens) ++count;
  return count;
}

Batch MicroBatches::part(const Batch& batch, std::int64_t index) const {
  const std::int64_t size = batch.size() / of(batch);
  return batch.examples(index * size, (index + 1) * size);
}

void MicroBatches::require_whole(const Batch& batch) const {
  if (batch.size() % of(batch) == 0) return;
  throw ShapeMismatch(concat("a batch of ", batch.size(), " examples does not split into ", count_,
                             " micro-batches"));
}

/// Twice as many, or as many times more as change those of the batch; none where they do not split
/// it.
std::optional<std::int64_t> MicroBatches::halved(const Batch& batch) const {
  const std::int64_t largest =
      stretches_.size() == 1 ? batch.size() : stretches_.back().batch.batch_size;
  for (std::int64_t count = 2 * own_factor_ * count_; largest % count == 0; count *= 2) {
    if (of(batch, count) != of(batch)) return count;
  }
  return {};
}

void MicroBatches::halve(const Batch& batch, bool alone) {
  const std::int64_t count = halved(batch).value();
  if (alone) {
    own_factor_ = count / count_;
  } else {
    count_ = count;
  }
}

}  // namespace hybrid_trainer
