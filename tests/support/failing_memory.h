#pragma once

#include <memory>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer::testing {

/// Memory that behaves like a file on disk: copies into it throw while `fails` is set.
class FailingMemory final : public MemorySource {
 public:
  explicit FailingMemory(const bool& fails) : fails_(fails) {}
  void* take(std::size_t bytes) noexcept override { return memory_->take(bytes); }
  void give(void* data, std::size_t bytes) noexcept override { memory_->give(data, bytes); }
  Device device() const override { return {}; }
  bool copy_in(void*, const void*, std::size_t) override {
    if (fails_) throw IoError("cannot write the scratch file: No space left on device");
    return false;
  }

 private:
  std::unique_ptr<MemorySource> memory_ = system_memory();
  const bool& fails_;
};

inline std::shared_ptr<MemoryPool> failing_pool(const bool& fails) {
  return MemoryPool::create("scratch file", {}, std::make_unique<FailingMemory>(fails));
}

}  // namespace hybrid_trainer::testing
