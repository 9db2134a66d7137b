#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/memory/predict_aware_memory_config.h"

namespace hybrid_trainer {

/// A tensor that can be moved away: its name and the place that holds it, which stays where it is.
struct OffloadSlot {
  std::string name;
  Tensor* tensor;
};

struct MoveOutResult {
  std::size_t freed_bytes = 0;  // of device memory; on CUDA once the copies are made
  /// Why all slots stayed as they were (disk full, host memory over its budget), or "".
  std::string problem;
};

/// What happens to optimizer state (all bytes count as MemoryKind::kOptimizerState) while a phase
/// does not need it. While tensors are out their slots are undefined and their device memory is the
/// system's. One caller thread; at most one background thread, which ends with the restore or the
/// strategy. On CUDA copies to and from pinned memory run on a stream of their own, ordered by
/// events: no call waits for the device.
class OffloadStrategy {
 public:
  virtual ~OffloadStrategy() = default;
  /// Moves the content of all slots out and frees their memory, all or none. The slots must be in
  /// place. Blocks where the copies are the processor's.
  virtual MoveOutResult move_out(std::vector<OffloadSlot> slots, const Stream& stream) = 0;
  /// Frees what has been copied out since; move_out does it itself where its copies are done when
  /// it returns.
  virtual void release_moved_out() {}
  /// Starts to bring them back and returns; does nothing where nothing is out or async_restore is
  /// off.
  virtual void begin_restore() = 0;
  /// Blocks until every slot is in place again, in new memory of the stream that move_out got, for
  /// work that is enqueued there from now on;
  /// restores here and now where begin_restore was not called. Throws what went wrong (OutOfMemory,
  /// IoError); the content is then still out, and another call tries again.
  virtual void wait_until_restored() = 0;
  /// False: what comes back is zeros, and counters that belong to it (Optimizer::set_steps_taken)
  /// must restart from 0.
  virtual bool keeps_content() const = 0;
};

/// The strategy that `config.offload_strategy` names. `host_pool` takes what goes to memory. Throws
/// ConfigError on an unknown name, CannotCreate where the folder of a file cannot be written to.
///
/// `host_pool` should be pinned where the slots lie on CUDA (make_host_pool).
std::unique_ptr<OffloadStrategy> make_offload_strategy(const PredictAwareMemoryConfig& config,
                                                       std::shared_ptr<MemoryPool> host_pool);

}  // namespace hybrid_trainer
