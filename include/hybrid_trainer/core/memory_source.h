#pragma once

#include <cstddef>
#include <memory>

#include "hybrid_trainer/core/device.h"

namespace hybrid_trainer {

/// What a MemoryPool takes its bytes from.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// At least `bytes`, aligned to 64 (2 MiB from 2 MiB on) on the host and to 256 on a
  /// device; nullptr where there is no more.
  virtual void* take(std::size_t bytes) noexcept = 0;
  virtual void give(void* data, std::size_t bytes) noexcept = 0;
  /// Where the bytes lie.
  virtual Device device() const = 0;
  /// True where a CUDA device copies to and from them by itself, beside other work.
  virtual bool pinned() const { return false; }
  /// True where taking is slow or blocks the device, so that pools had better take much at once.
  virtual bool prefers_slabs() const { return false; }
  /// True where each block is to be taken by itself, of the very size that was asked for, and given
  /// back at once: what goes past its end, or comes after it, is then found by a memory checker.
  virtual bool keeps_blocks_apart() const { return false; }
};

/// The process's memory; from 2 MiB on mappings of their own.
std::unique_ptr<MemorySource> system_memory();
/// Page-locked memory of the process, at most `limit_bytes` of it. Throws DeviceError where there
/// is no CUDA.
std::unique_ptr<MemorySource> pinned_memory(std::size_t limit_bytes);
/// Addresses without memory behind them, on a simulated device.
std::unique_ptr<MemorySource> simulated_memory();
/// Plain memory of a CUDA device. Throws DeviceError where there is none.
std::unique_ptr<MemorySource> cuda_memory(Device device);

}  // namespace hybrid_trainer
