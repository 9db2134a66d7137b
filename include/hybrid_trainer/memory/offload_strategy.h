#pragma once

#include <cstddef>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/memory/memory_config.h"
#include "hybrid_trainer/memory/memory_places.h"

namespace hybrid_trainer {

/// How a lossy strategy may round the values of a slot.
enum class SlotRounding {
  kSigned,       // values of either sign
  kNonNegative,  // divisors: positive values stay positive
  kNone          // not rounded
};

/// A tensor to offload: its name and the Tensor object, whose address does not change.
struct OffloadSlot {
  std::string name;
  Tensor* tensor;
  SlotRounding rounding = SlotRounding::kSigned;
};

struct MoveOutResult {
  std::size_t freed_bytes = 0;  // of device memory; on CUDA once the copies are done
  /// Reason why nothing was offloaded (disk full, host memory over its budget), or "".
  std::string problem;
};

/// Location of the slots' contents, in the order of one offload and restore.
enum class Location {
  kResident,   // in the slots
  kLeaving,    // being copied out: the slots are undefined, their memory is not free yet
  kOffloaded,  // offloaded, device memory is free
  kReturning,  // being copied into new memory
};

/// Accuracy of the slots' contents after they are restored.
enum class Restored { kBits, kRounded, kZeros };

/// Work of a strategy so far. For copies on a separate stream, seconds measure only the calls.
struct OffloadUse {
  std::int64_t times = 0;
  std::size_t bytes = 0;       // number of bytes offloaded, which equals the number restored
  double restore_seconds = 0;  // spent on restores, in any thread
  double waited_seconds = 0;   // part of restore_seconds that was blocked in wait_until_restored
};

/// Offloads tensors while a phase does not need them, and restores them. Slots of offloaded tensors
/// are undefined and use no device memory. Call it from one thread. It starts at most one thread,
/// which ends with the restore or the strategy. On CUDA, copies of pinned memory run on a separate
/// stream, ordered by events, and no call waits for the device. The base class does nothing.
class OffloadStrategy {
 public:
  virtual ~OffloadStrategy() = default;
  /// Returns the location; always kResident if the strategy moves nothing.
  virtual Location location() const { return Location::kResident; }
  /// Offloads the contents of all slots and frees their memory; if it cannot offload all, offloads
  /// none. The slots must be resident. Blocks if the CPU copies the contents.
  virtual MoveOutResult move_out(std::vector<OffloadSlot> /*slots*/, const Stream& /*stream*/) {
    return {};
  }
  /// Frees the memory of slots whose copies have finished, unless move_out has already freed it.
  virtual void release_moved_out() {}
  /// Starts to read the contents from a file into host memory, and returns without waiting. Uses no
  /// device memory. Has no effect if there is no file or no room in host memory, if the slots are
  /// resident or returning, or if async_restore is off.
  virtual void begin_restore() {}
  /// Allocates the slots' new memory and starts to fill it, overlapping with work enqueued later.
  /// No effect if the slots are resident or returning, or if async_restore is off.
  virtual void begin_return() {}
  /// Blocks until every slot is resident, in new memory of its MemoryKind from the stream of
  /// move_out. Later work on that stream may use them. Restores synchronously without begin_return.
  /// Throws OutOfMemory or IoError; the contents then stay offloaded, and another call retries.
  virtual void wait_until_restored() {}
  const OffloadUse& use() const { return use_; }
  /// Returns the accuracy of the contents after a restore. After kZeros, the caller must also reset
  /// counters that belong to the slots (Optimizer::set_steps_taken) to 0.
  virtual Restored restored() const { return Restored::kBits; }

 protected:
  OffloadUse use_;
};

/// Makes the strategy that `config.offload_strategy` names. `pool` stores offloaded contents; use
/// pinned memory for slots on CUDA (make_host_pool). `staging`: host memory for begin_restore, or
/// null. Throws ConfigError for an unknown name.
std::unique_ptr<OffloadStrategy> make_offload_strategy(
    const PredictAwareMemoryConfig& config, std::shared_ptr<MemoryPool> pool,
    std::shared_ptr<MemoryPool> staging = nullptr);

/// Returns the pool for offloaded contents: host memory or a file. Throws CannotCreate if the
/// file's folder is not writable.
std::shared_ptr<MemoryPool> offload_pool(const PredictAwareMemoryConfig& config,
                                         MemoryPlaces& places);

}  // namespace hybrid_trainer
