#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Names that PredictAwareMemoryConfig::offload_strategy may hold.
const std::vector<std::string>& offload_strategy_names();

/// Where optimizer state is kept while Predict does not need it. JSON group `predict_aware_memory`.
struct PredictAwareMemoryConfig {
  std::string offload_strategy = "cpu_offload";
  std::string offload_target = "memory";
  bool async_restore = true;
  std::int64_t async_restore_lookahead = 5;

  /// The state stays in place.
  static PredictAwareMemoryConfig conservative();
  /// Offloads to host memory, restores in the background five steps before the state is needed.
  static PredictAwareMemoryConfig balanced();
  /// Offloads to host memory, restores in the background one step before the state is needed: the
  /// longest time offloaded without loss.
  static PredictAwareMemoryConfig aggressive();

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"offload_strategy", self.offload_strategy,
                "What Predict does with the optimizer state: none keeps it, cpu_offload moves it "
                "out and brings the same "
                "bits back, compress_in_place keeps one byte of an f32 number and rounds, "
                "drop_and_reinitialize frees it and starts again from zeros.",
                Range{}, offload_strategy_names()});
    visit(Field{"offload_target", self.offload_target,
                "Where cpu_offload moves the state: `memory` (host memory), or a folder for a "
                "temporary file."});
    visit(Field{"async_restore", self.async_restore,
                "Bring the state back in a background thread while Predict goes on."});
    visit(Field{"async_restore_lookahead", self.async_restore_lookahead,
                "Predict steps before Correct at which the background restore begins.",
                Range::at_least(1)});
  }
};

}  // namespace hybrid_trainer
