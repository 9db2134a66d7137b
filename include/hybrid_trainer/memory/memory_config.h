#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/memory_size.h"

namespace hybrid_trainer {

/// Names that MemoryConfig::activations may hold: "device", "host", "file".
const std::vector<std::string>& placement_names();
/// Names that MemoryConfig::optimizer_state may hold: "device", "host".
const std::vector<std::string>& state_placement_names();

/// How much memory a run may take, and what it does to take less. JSON group `memory`.
struct MemoryConfig {
  MemorySize device_budget{};
  MemorySize host_budget{};
  double recompute = 0;
  std::string activations = "device";
  std::string optimizer_state = "device";
  std::string folder{};

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(
        Field{"device_budget", self.device_budget,
              "Most device memory that is taken, in use or kept for reuse. Where a step does not "
              "fit, its micro-batches halve; what does not fit at all is an error. 0: no limit."});
    visit(Field{"host_budget", self.host_budget,
                "The same for host memory that device memory is moved out to."});
    visit(Field{"recompute", self.recompute,
                "Share of the model's blocks, from the first on, of which only the input is kept; "
                "backward computes the rest again, to the same bits.",
                Range::between(0, 1)});
    visit(Field{"activations", self.activations,
                "Where what forward saves waits for backward: device, host, or file (in `folder`).",
                Range{}, placement_names()});
    visit(Field{"optimizer_state", self.optimizer_state,
                "Where the optimizer state is between updates: device, or host, from where each "
                "weight's comes for its update. Then Predict moves nothing.",
                Range{}, state_placement_names()});
    visit(Field{"folder", self.folder,
                "Folder of the files that hold what device and host do not; empty: the system's "
                "for temporary files."});
  }

  /// folder, or the system's for temporary files.
  std::string scratch_folder() const;
};

}  // namespace hybrid_trainer
