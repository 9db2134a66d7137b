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
  /// The same; what a file holds is read one step before it is needed, not five.
  static PredictAwareMemoryConfig aggressive();

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{
        "offload_strategy", self.offload_strategy,
        "What Predict does with the optimizer state: none keeps it, and masters and direction "
        "with it, which all others move to the host; cpu_offload moves it "
        "out and brings the same bits back, pinned_cpu_offload locks the memory it moves it to (as "
        "is always so beside CUDA), nvme_offload moves it to a file; compress_in_place keeps one "
        "byte of an f32 number and rounds, "
        "drop_and_reinitialize frees it and starts again from zeros.",
        Range{}, offload_strategy_names()});
    visit(
        Field{"offload_target", self.offload_target,
              "Where the state goes: `memory`, host memory for cpu_offload and a temporary file in "
              "memory.folder for nvme_offload; or the folder of that file for both."});
    visit(Field{"async_restore", self.async_restore,
                "Bring the state back beside Correct's forward and backward, on the processor in a "
                "background thread; false does so before its update."});
    visit(Field{"async_restore_lookahead", self.async_restore_lookahead,
                "Predict steps before Correct at which what a file holds begins to be read into "
                "host memory, where that has no budget.",
                Range::at_least(1)});
  }
};

}  // namespace hybrid_trainer
