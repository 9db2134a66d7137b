#pragma once

#include <cstddef>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/memory/memory_config.h"
#include "hybrid_trainer/memory/memory_places.h"

namespace hybrid_trainer {

/// Rounding of a slot by a lossy strategy.
enum class SlotRounding {
  kSigned,       // values of either sign
  kNonNegative,  // used as divisors: positive values stay positive
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

/// Contents of the slots after they are restored.
enum class Restored { kBits, kRounded, kZeros };

/// Work of a strategy so far. For copies on a separate stream, seconds measure only the calls.
struct OffloadUse {
  std::int64_t times = 0;
  std::size_t bytes = 0;       // offloaded; the same number is restored
  double restore_seconds = 0;  // spent on restores, in any thread
  double waited_seconds = 0;   // of these, blocked in wait_until_restored
};

/// Offloads tensors while a phase does not need them, and restores them. Slots of offloaded tensors
/// are undefined, and their device memory is free. Call it from one thread. It uses at most one
/// background thread, which ends with the restore or the strategy. On CUDA, copies to and from
/// pinned memory run on a separate stream, ordered by events, and no call waits for the device. The
/// base class leaves everything in place.
class OffloadStrategy {
 public:
  virtual ~OffloadStrategy() = default;
  /// Always kResident if the strategy moves nothing.
  virtual Location location() const { return Location::kResident; }
  /// Offloads the contents of all slots, or of none, and frees their memory. The slots must be
  /// resident. Blocks if the CPU does the copying.
  virtual MoveOutResult move_out(std::vector<OffloadSlot> /*slots*/, const Stream& /*stream*/) {
    return {};
  }
  /// Frees slots whose copies have finished. move_out frees those that finish before it returns.
  virtual void release_moved_out() {}
  /// Starts to read a file's contents into host memory, and returns; uses no device memory. No
  /// effect without a file or room on the host, if the slots are resident or returning, or if
  /// async_restore is off.
  virtual void begin_restore() {}
  /// Allocates the slots' new memory and starts to fill it, overlapping with work enqueued later.
  /// No effect if the slots are resident or returning, or if async_restore is off.
  virtual void begin_return() {}
  /// Blocks until every slot is resident, in new memory of its kind from move_out's stream, ready
  /// for work enqueued there later. Restores synchronously if begin_return was not called. Throws
  /// OutOfMemory, IoError; the contents then stay offloaded, and another call retries.
  virtual void wait_until_restored() {}
  const OffloadUse& use() const { return use_; }
  /// Returns the contents after a restore. After kZeros, counters of the slots
  /// (Optimizer::set_steps_taken) must restart from 0.
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
