#pragma once

#include "hybrid_trainer/core/tensor.h"
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
  /// Freed bytes of device memory; on CUDA, freed when the copies finish.
  std::size_t freed_bytes = 0;
  /// Reason why nothing was offloaded (disk full, host memory over its budget), or "".
  std::string problem;
};

/// Location of the slots' contents, in the order of one offload and restore.
enum class Location {
  kResident,   // in the slots
  kLeaving,    // being copied out: slots are undefined, but their memory is still in use
  kOffloaded,  // offloaded, device memory is free
  kReturning,  // being copied into new memory
};

/// Accuracy of the slots' contents after they are restored.
enum class Restored { kBits, kRounded, kZeros };

/// Statistics of a strategy. For copies on a separate stream, seconds cover only the calls that
/// enqueue them.
struct OffloadUse {
  std::int64_t times = 0;
  std::size_t bytes = 0;       // number of bytes offloaded, which equals the number restored
  double restore_seconds = 0;  // spent on restores, in any thread
  double waited_seconds = 0;   // part of restore_seconds spent blocked in wait_until_restored
};

/// Offloads tensors while a phase does not need them, and restores them. Offloaded slots are
/// undefined. Call it from one thread. Starts at most one thread, which exits after the restore. On
/// CUDA, copies of pinned memory run on a separate stream, ordered by events. The base class does
/// nothing.
class OffloadStrategy {
 public:
  virtual ~OffloadStrategy() = default;
  /// Returns the location; always kResident if the strategy moves nothing.
  virtual Location location() const { return Location::kResident; }
  /// Offloads the contents of all slots, or of none if not all can be offloaded, and frees their
  /// memory. The slots must be resident. Blocks if the CPU copies the contents.
  virtual MoveOutResult move_out(std::vector<OffloadSlot> /*slots*/, const Stream& /*stream*/) {
    return {};
  }
  /// Frees the memory of slots whose copies have finished, unless move_out has already freed it.
  virtual void release_moved_out() {}
  /// Starts an asynchronous read of the file into host memory, if there is room. Has no effect if
  /// the slots are resident or returning, or if async_restore is off.
  virtual void begin_restore() {}
  /// Allocates new memory for the slots and starts to fill it, concurrently with work enqueued
  /// later. Has no effect if the slots are resident or returning, or if async_restore is off.
  virtual void begin_return() {}
  /// Blocks until every slot is resident. Later work on the stream of move_out may use the slots.
  /// Their new memory comes from that stream's pool and has their MemoryKind. Restores
  /// synchronously if begin_return was not called. Throws OutOfMemory or IoError; the contents then
  /// stay offloaded, and another call retries.
  virtual void wait_until_restored() {}
  const OffloadUse& use() const { return use_; }
  /// Returns how exactly a restore reproduces the contents. After kZeros, the caller must also
  /// reset the optimizer's step count to 0.
  virtual Restored restored() const { return Restored::kBits; }

 protected:
  OffloadUse use_;
};

/// Makes the strategy `config.offload_strategy`. `pool` stores contents, pinned for CUDA.
/// `staging`: host memory for begin_restore, or null. Throws ConfigError for an unknown name.
std::unique_ptr<OffloadStrategy> make_offload_strategy(
    const PredictAwareMemoryConfig& config, std::shared_ptr<MemoryPool> pool,
    std::shared_ptr<MemoryPool> staging = nullptr);

/// Returns the pool for offloaded contents: host memory or a file. Throws CannotCreate.
std::shared_ptr<MemoryPool> offload_pool(const PredictAwareMemoryConfig& config,
                                         MemoryPlaces& places);

}  // namespace hybrid_trainer
