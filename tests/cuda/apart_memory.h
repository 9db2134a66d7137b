#pragma once

#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {

/// CUDA device memory that allocates each block separately.
class ApartMemory final : public MemorySource {
 public:
  explicit ApartMemory(Device device) : memory_(cuda_memory(device)) {}
  void* take(std::size_t bytes) noexcept override { return memory_->take(bytes); }
  void give(void* data, std::size_t bytes) noexcept override { memory_->give(data, bytes); }
  Device device() const override { return memory_->device(); }
  bool separates_blocks() const override { return true; }

 private:
  std::unique_ptr<MemorySource> memory_;
};

}  // namespace hybrid_trainer
