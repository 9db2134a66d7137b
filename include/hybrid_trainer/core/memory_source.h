#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "hybrid_trainer/core/device.h"

namespace hybrid_trainer {

inline constexpr std::size_t kCacheLine = 64;

/// Source of a MemoryPool's bytes.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// At least `bytes`, aligned to kCacheLine (4 KiB from 4 KiB on, 2 MiB from 2 MiB on) on the host and to 256 on a
  /// device; nullptr if out of memory.
  virtual void* take(std::size_t bytes) noexcept = 0;
  virtual void give(void* data, std::size_t bytes) noexcept = 0;
  /// The device that the memory is on.
  virtual Device device() const = 0;
  /// True if a CUDA device can copy to and from it directly, overlapping other work.
  virtual bool pinned() const { return false; }
  /// Copies from its memory to other host memory, or there from other, without the system's page
  /// cache between; false, and nothing done, where that is no use: then plain copies serve. In any
  /// thread. Throws IoError.
  virtual bool copy_out(void*, const void* /*own*/, std::size_t) { return false; }
  virtual bool copy_in(void* /*own*/, const void*, std::size_t) { return false; }
  /// True if taking is slow or blocks the device, so that pools should take much at once.
  virtual bool prefers_slabs() const { return false; }
  /// True if each block must be taken separately, in exactly the size asked for, and given back at
  /// once, so that a memory checker finds accesses past its end or after its lifetime.
  virtual bool keeps_blocks_apart() const { return false; }
};

/// The process's memory; blocks from 2 MiB on are mappings of their own.
std::unique_ptr<MemorySource> system_memory();
/// Mapped pieces of an unnamed file in `folder`, which disappears with the process in any case. The
/// disk's space is taken with each block; copies from 1 MiB on go past the page cache where the file
/// system has a way. Throws CannotCreate, which names `key`, the config's key that chose the folder.
std::unique_ptr<MemorySource> file_memory(const std::string& folder, const char* key);
/// Page-locked memory of the process, at most `limit_bytes` of it. Throws DeviceError where there
/// is no CUDA.
std::unique_ptr<MemorySource> pinned_memory(std::size_t limit_bytes);
/// Addresses without memory behind them, in the blocks that the device's own memory would give;
/// `pinned`: as the memory of a host beside a CUDA device.
std::unique_ptr<MemorySource> simulated_memory(Device device, bool pinned = false);
/// Plain memory of a CUDA device. Throws DeviceError where there is none.
std::unique_ptr<MemorySource> cuda_memory(Device device);

}  // namespace hybrid_trainer
