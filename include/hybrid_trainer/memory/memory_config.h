#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/memory_size.h"

namespace hybrid_trainer {

/// Names of places: "device", "host", "file".
const std::vector<std::string>& placement_names();

/// Names of MemoryMonitor's profiles: "aggressive", "balanced", "conservative".
const std::vector<std::string>& memory_profile_names();

/// How much memory a run may take, and what it does to take less. JSON group `memory`.
struct MemoryConfig {
  MemorySize device_budget{};
  MemorySize host_budget{};
  double recompute = 0;
  std::string activations = "device";
  std::int64_t activation_bits = 32;
  std::string optimizer_state = "device";
  std::string weights = "device";
  std::string device_map{};
  std::string gradients = "keep";
  std::int64_t gradient_bits = 32;
  std::string plan = "off";
  std::string profile = "balanced";
  bool allow_lossy = false;
  std::string folder{};
  std::int64_t timeline = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{
        "device_budget", self.device_budget,
        "Most device memory that is taken, in use or kept for reuse. Where a step does not "
        "fit, its micro-batches halve in that phase; what does not fit at all is an error. 0: no "
        "limit."});
    visit(Field{"host_budget", self.host_budget,
                "The same for host memory that device memory is moved out to."});
    visit(Field{"recompute", self.recompute,
                "Share of what forward saves, but for each block's input, that backward computes "
                "again instead, to the same bits: outputs of activation functions and norms first, "
                "then attention's, then whole blocks.",
                Range::between(0, 1)});
    visit(Field{"activations", self.activations,
                "Where what forward saves waits for backward: device, host, or file (in `folder`).",
                Range{}, placement_names()});
    visit(Field{"activation_bits", self.activation_bits,
                "Bits of a kept activation that backward stands small errors in, where it has "
                "more: 32 rounds nothing, 16 to bf16, 8 in blocks of 256.",
                Range::between(8, 32)});
    visit(Field{"optimizer_state", self.optimizer_state,
                "Where the optimizer state is between updates: device, or host or file, from where "
                "each weight's comes for its update. Then Predict does not move it.",
                Range{}, placement_names()});
    visit(Field{"weights", self.weights,
                "Where weights are while nothing computes with them: device, or host or file, from "
                "where each comes for its part of a pass. Vectors stay on the device.",
                Range{}, placement_names()});
    visit(Field{"device_map", self.device_map,
                "Where single weights are, before `weights`: PATTERN=PLACE with commas between, as "
                "h.0.*=device,h.*=host, of which the first that matches holds; or auto: in the "
                "order of use as many blocks on the device as device_budget takes, then as many "
                "on the host as host_budget does, the rest in a file."});
    visit(
        Field{"gradients",
              self.gradients,
              "keep: all stay on the device until the update; consume: each goes to the host, or "
              "to a file with the weights, as soon as backward has it, and is updated from there; "
              "or at once and nothing goes anywhere, where neither optimizer.clip_norm nor "
              "divergence.max_skipped_updates nor phases.max_predict_steps (all 0) needs all.",
              Range{},
              {"keep", "consume"}});
    visit(Field{"gradient_bits", self.gradient_bits,
                "Bits of a gradient from backward to its update: 32, or 16 with late updates "
                "(phases.ingredient optimizer_state, phases.lag 1, adamw or muon), which then "
                "leave what is on its way at phases.exact_state, in bf16 too.",
                Range::between(16, 32)});
    visit(Field{"plan",
                self.plan,
                "auto: where the run does not fit its budgets, take the cheapest options of this "
                "group and of micro-batches that make it fit, once, before the first step; without "
                "device_budget, fit the memory that there is.",
                Range{},
                {"off", "auto"}});
    visit(Field{"profile", self.profile,
                "From which shares of device_budget on records and events call memory scarce: "
                "target, warning, critical, emergency at .92 .94 .96 .98 (aggressive), .90 .92 .95 "
                ".97 (balanced), .85 .88 .92 .95 (conservative).",
                Range{}, memory_profile_names()});
    visit(Field{"allow_lossy", self.allow_lossy,
                "A plan may also choose what changes bits: activations in 8 bits, "
                "optimizer state in 16 or 8, gradients of late updates in 16."});
    visit(Field{"folder", self.folder,
                "Folder of the files that hold what device and host do not; empty: the system's "
                "for temporary files."});
    visit(Field{"timeline", self.timeline,
                "Steps of each phase, from its first on, whose every allocation goes to "
                "memory_timeline.json in the run's folder, which Perfetto and chrome://tracing "
                "open; it ends at 64 MiB. 0 writes none.",
                Range::between(0, 1000)});
  }

  /// folder, or the system's for temporary files.
  std::string scratch_folder() const;
};

}  // namespace hybrid_trainer
