#pragma once

#include <memory>

#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {

enum class DeviceType { kCpu };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// An ordered queue of work on one device, together with the pool its tensors come from. Moves,
/// never copies. On a processor each call has run when it returns.
class Stream {
 public:
  explicit Stream(std::shared_ptr<MemoryPool> pool, Device device = {})
      : device_(device), pool_(std::move(pool)) {}
  Stream(Stream&&) = default;
  Stream& operator=(Stream&&) = default;

  Device device() const { return device_; }
  const std::shared_ptr<MemoryPool>& pool() const { return pool_; }
  /// Blocks until all work enqueued so far is done.
  void synchronize() const {}

 private:
  Device device_;
  std::shared_ptr<MemoryPool> pool_;
};

}  // namespace hybrid_trainer
