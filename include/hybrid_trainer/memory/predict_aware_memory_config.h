#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Names that PredictAwareMemoryConfig::offload_strategy may hold.
const std::vector<std::string>& offload_strategy_names();

/// Where optimizer state is kept while Predict does not need it; unless it stays, f32 masters that
/// bf16 copies stand in for and the direction are on the host meanwhile. JSON group `predict_aware_memory`.
struct PredictAwareMemoryConfig {
  std::string offload_strategy = "cpu_offload";
  std::string offload_target = "memory";
  bool async_restore = true;
  std::int64_t async_restore_lookahead = 5;

  /// The state stays in place.
  static PredictAwareMemoryConfig conservative();
  /// Offloads to host memory.
  static PredictAwareMemoryConfig balanced();
  /// The defaults, but a file is read one step before it is needed, not five.
  static PredictAwareMemoryConfig aggressive();

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{
        "offload_strategy", self.offload_strategy,
        "What Predict does with the optimizer state. none keeps it on the device, and masters and "
        "direction with it; all others move those to the host. cpu_offload moves the state out and "
        "restores the same bits. pinned_cpu_offload does so with locked memory, as always beside "
        "CUDA. nvme_offload uses a file. compress_in_place rounds each f32 number to one byte. "
        "drop_and_reinitialize frees it and starts again from zeros.",
        Range{}, offload_strategy_names()});
    visit(Field{
        "offload_target", self.offload_target,
        "Where the state goes: `memory`, or a folder. `memory` is host memory for cpu_offload, and "
        "a temporary file in memory.folder for nvme_offload. A folder holds that file for both."});
    visit(Field{"async_restore", self.async_restore,
                "Restore the state beside Correct's forward and backward, on the CPU in a "
                "background thread; false restores it before the update."});
    visit(Field{"async_restore_lookahead", self.async_restore_lookahead,
                "Predict steps before Correct at which reading from a file into host memory "
                "begins, if host memory has no budget.",
                Range::at_least(1)});
  }
};

}  // namespace hybrid_trainer
