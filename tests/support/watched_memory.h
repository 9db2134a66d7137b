#pragma once

#include <atomic>
#include <cstring>
#include <memory>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer::testing {

/// Memory that counts or rejects copies into it.
class WatchedMemory final : public MemorySource {
 public:
  WatchedMemory(std::atomic<int>& writes, const std::atomic<bool>& fails)
      : writes_(writes), fails_(fails) {}
  void* take(std::size_t bytes) noexcept override { return memory_->take(bytes); }
  void give(void* data, std::size_t bytes) noexcept override { memory_->give(data, bytes); }
  Device device() const override { return {}; }
  bool copy_in(void* own, const void* from, std::size_t bytes) override {
    if (fails_) throw IoError("no disk");
    ++writes_;
    std::memcpy(own, from, bytes);
    return true;
  }

 private:
  std::unique_ptr<MemorySource> memory_ = system_memory();
  std::atomic<int>& writes_;
  const std::atomic<bool>& fails_;
};

}  // namespace hybrid_trainer::testing
