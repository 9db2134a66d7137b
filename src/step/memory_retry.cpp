#include "src/step/memory_retry.h"

#include <algorithm>

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

MemoryRetry::MemoryRetry(const HybridTrainerConfig& config, MicroBatches& micro_batches,
                         Communicator* ranks, WeightParts* parts, const Stream& stream)
    : micro_batches_(micro_batches),
      ranks_(ranks),
      parts_(parts),
      stream_(stream),
      has_activations_elsewhere_(config.memory.activations != "device"),
      shares_stay_where_halved_(config.phases.runs_ahead_of_ranks() &&
                                config.gradient_accumulation.micro_batches %
                                        (ranks == nullptr ? 1 : ranks->size()) ==
                                    0) {}

StepRetry MemoryRetry::wait_for_way_out(const Batch& batch, const OutOfMemory& error,
                                        Optimizer& optimizer) {
  const bool outside_pools = stream_.device().type == DeviceType::kCuda && !error.shortage();
  if (outside_pools) throw;  // such as a library's kernels, for which smaller ones leave no more
  const bool elsewhere = error.shortage() && error.shortage()->pool != stream_.pool()->name();
  if (elsewhere && !has_activations_elsewhere_) throw;  // smaller ones take as much
  if (optimizer.leave_device(stream_)) return StepRetry::kSame;
  if (!micro_batches_.can_halve(batch)) throw;
  stream_.synchronize();  // what the failed attempt enqueued
  stream_.pool()->trim();
  return StepRetry::kHalved;
}

void MemoryRetry::compute_less(const Batch& batch, const OutOfMemory& error, StepRetry& retry,
                               Optimizer& optimizer) {
  if (!is_one_of_several() || retry != StepRetry::kNone) throw;
  retry = wait_for_way_out(batch, error, optimizer);
  if (parts_ != nullptr) parts_->repeat_pass();
}

void MemoryRetry::begin_again(const Batch& batch, StepRetry retry, bool concerns_others) {
  if (retry == StepRetry::kHalved)
    micro_batches_.halve(batch, is_one_of_several() && !concerns_others);
}

StepRetry MemoryRetry::wait_for_most_wanted(StepRetry here) const {
  if (stream_.device().simulated) return here;
  StepRetry most = here;
  for (const std::string& theirs : ranks_->host_gather({reinterpret_cast<const char*>(&here), 1}))
    most = std::max(most, static_cast<StepRetry>(theirs.at(0)));
  return most;
}

}  // namespace hybrid_trainer
