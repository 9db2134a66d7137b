#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {

/// Allocates every block separately, and fails one allocation.
class FailingMemory final : public MemorySource {
 public:
  explicit FailingMemory(std::unique_ptr<MemorySource> memory) : memory_(std::move(memory)) {}
  void* take(std::size_t bytes) noexcept override {
    const bool fails = left_ == 0 || left_ == -1;  // a pool retries once
    if (left_ >= -1) --left_;
    return fails ? nullptr : memory_->take(bytes);
  }
  void give(void* data, std::size_t bytes) noexcept override { memory_->give(data, bytes); }
  Device device() const override { return memory_->device(); }
  bool separates_blocks() const override { return true; }

  /// Fails after `blocks` more allocations.
  void fail_after(std::int64_t blocks) { left_ = blocks; }
  bool has_failed() const { return left_ < -1; }

 private:
  std::unique_ptr<MemorySource> memory_;
  std::int64_t left_ = -2;
};

/// A rank fails to allocate one block.
struct Fault {
  int rank = 0;
  std::int64_t step = 0, blocks = 0;               // allocated before it in that step
  std::int64_t steps() const { return step + 3; }  // number of steps to train
};

struct Trained {
  RankOutcome outcome;
  std::vector<std::int64_t> micro_batches;  // of each step
  bool has_failed = false;
};

inline Trained train_with(const Fault& fault, const HybridTrainerConfig& config,
                          Communicator& others, Device device = {}) {
  RankLinks links(others, config.distributed, device);
  auto owned = std::make_unique<FailingMemory>(
      device.type == DeviceType::kCpu ? system_memory() : cuda_memory(device));
  FailingMemory& memory = *owned;
  const Stream stream{MemoryPool::create("device", {}, std::move(owned))};
  const auto model = make_model(config.model, 1, stream);
  HybridTrainer trainer(*model, config, stream, make_host_pool(device), &links.ranks());
  Trained trained;
  for (std::int64_t step = 0; step < fault.steps(); ++step) {
    const Batch batch = step_batch(config, step, stream);
    const bool fails = step == fault.step && others.rank() == fault.rank;
    if (fails) memory.fail_after(fault.blocks);
    const StepRecord record = trainer.step(batch);
    if (fails) {
      trained.has_failed = memory.has_failed();
      memory.fail_after(-2);
    }
    trained.micro_batches.push_back(record.micro_batches);
    trained.outcome.losses.push_back(record.loss);
    trained.outcome.phases.push_back(record.phase);
  }
  trained.outcome.weights = master_values(*model, stream);
  return trained;
}

}  // namespace hybrid_trainer
