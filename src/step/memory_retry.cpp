#include "src/step/memory_retry.h"

#include <algorithm>

namespace hybrid_trainer {

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
