#pragma once

#include <cstddef>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/memory/memory_config.h"
#include "hybrid_trainer/memory/memory_places.h"

namespace hybrid_trainer {

/// Rounding of a slot by a strategy that rounds.
enum class SlotRounding {
  kSigned,       // its values have either sign
  kNonNegative,  // they are divided by: what is above 0 stays so
  kNone          // not at all
};

/// A tensor that can be offloaded: its name and the Tensor object, whose address stays the same.
struct OffloadSlot {
  std::string name;
  Tensor* tensor;
  SlotRounding rounding = SlotRounding::kSigned;
};

struct MoveOutResult {
  std::size_t freed_bytes = 0;  // of device memory; on CUDA once the copies are done
  /// Why nothing was offloaded (disk full, host memory over its budget), or "".
  std::string problem;
};

/// Where the contents of the slots are. They go round in this order.
enum class Whereabouts {
  kResident,   // in the slots
  kLeaving,    // being copied out: the slots are undefined, their memory is not free yet
  kAway,       // offloaded, and their device memory is free
  kReturning,  // being copied into new memory
};

/// Contents of the slots after they are restored.
enum class Restored { kBits, kRounded, kZeros };

/// Work of a strategy so far. Where a device copies on a stream of its own, its seconds are those
/// of the calls.
struct OffloadUse {
  std::int64_t times = 0;
  std::size_t bytes = 0;       // moved out, and as many back
  double restore_seconds = 0;  // that bringing them back took, in whichever thread
  double waited_seconds = 0;   // of them, those that wait_until_restored blocked
};

/// Moves tensors away while a phase does not need them, and restores them. While they are
/// offloaded, their slots are undefined and their device memory is free. Called from one thread; at
/// most one background thread, which ends with the restore or the strategy. On CUDA, copies to and
/// from pinned memory run on a stream of their own, ordered by events: no call waits for the
/// device. By default it leaves everything in place.
class OffloadStrategy {
 public:
  virtual ~OffloadStrategy() = default;
  /// Always kResident where the strategy moves nothing.
  virtual Whereabouts whereabouts() const { return Whereabouts::kResident; }
  /// Offloads the contents of all slots and frees their memory, all or none. The slots must be in
  /// place. Blocks if the processor does the copying.
  virtual MoveOutResult move_out(std::vector<OffloadSlot> /*slots*/, const Stream& /*stream*/) {
    return {};
  }
  /// Frees what has been copied out in the meantime; move_out does so itself if its copies are done
  /// when it returns.
  virtual void release_moved_out() {}
  /// Starts to bring what lies in a file into host memory, and returns; takes no device memory. Does
  /// nothing if there is no such file, no room on the host, the slots are resident or returning, or
  /// async_restore is off.
  virtual void begin_restore() {}
  /// Takes the slots' new memory and starts to fill it beside what is enqueued from now on; does
  /// nothing if they are resident or returning, or async_restore is off.
  virtual void begin_return() {}
  /// Blocks until every slot is in place again, in new memory of its kind from the stream given to
  /// move_out, for work that is enqueued there from now on; restores synchronously if begin_return
  /// was not called. Throws what went wrong (OutOfMemory, IoError); the contents are then still
  /// offloaded, and another call tries again.
  virtual void wait_until_restored() {}
  const OffloadUse& use() const { return use_; }
  /// Where it is kZeros, counters that belong to the slots (Optimizer::set_steps_taken) must
  /// restart from 0.
  virtual Restored restored() const { return Restored::kBits; }

 protected:
  OffloadUse use_;
};

/// The strategy that `config.offload_strategy` names. `pool` holds what is moved out; memory should be
/// pinned if the slots are on CUDA (make_host_pool). Throws ConfigError on an unknown name.
/// `staging`: host memory for begin_restore; null where there is none.
std::unique_ptr<OffloadStrategy> make_offload_strategy(
    const PredictAwareMemoryConfig& config, std::shared_ptr<MemoryPool> pool,
    std::shared_ptr<MemoryPool> staging = nullptr);

/// Where the config wants what is moved out: host memory, or a file. Throws CannotCreate if the folder
/// of the file cannot be written to.
std::shared_ptr<MemoryPool> offload_pool(const PredictAwareMemoryConfig& config,
                                         MemoryPlaces& places);

}  // namespace hybrid_trainer
