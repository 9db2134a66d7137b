#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Accepted placements: "device", "host", "file".
const std::vector<std::string>& placement_names();

/// Returns the condition that the run may place data in files in memory.folder.
KeyNeed any_use_of_files();

/// Memory budgets of a run and options to meet them. JSON group `memory`.
struct MemoryConfig {
  MemorySize device_budget{};
  MemorySize host_budget{};
  double recompute = 0;
  std::int64_t segment_length = 0;
  std::int64_t kept_segments = 1;
  std::string activations = "device";
  std::int64_t activation_bits = 32;
  std::string optimizer_state = "device";
  std::string weights = "device";
  std::string device_map{};
  std::string gradients = "keep";
  std::int64_t gradient_bits = 32;
  std::string plan = "off";
  bool allow_lossy = false;
  std::string folder{};
  std::int64_t timeline = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"device_budget", self.device_budget,
                "Maximum device memory, in use or kept for reuse; 0 sets no limit. If a step does "
                "not fit, its micro-batches are halved in that phase; if this is not enough, the "
                "run fails. On CUDA, leave another 1 GiB for libraries."}
              .essential(Question::kMemory));
    visit(Field{"host_budget", self.host_budget,
                "Maximum host memory for data moved off the device; 0 sets no limit."});
    visit(
        Field{"recompute", self.recompute,
              "Share of activations that backward recomputes instead of storing them. The input of "
              "each block is always stored. Recomputes outputs of activation functions and norms "
              "first, then attention, then whole blocks. It does not change results on a CPU.",
              Range::between(0, 1)}
            .essential(Question::kMemory));
    visit(Field{
        "segment_length", self.segment_length,
        "Tokens per segment of a sequence. Activations are stored for few segments at a time; "
        "backward recomputes the others, from last to first, and gives the exact gradient. "
        "Requires that all layers carry a state or use a window. 0 uses whole sequences, or "
        "segments of 2048 tokens if a layer carries a state and sequences are longer than 4096.",
        Range::between(0, 1 << 20)}
              .needs_any(KeyNeed::of(
                  {"data.sequence_length"}, {"memory.segment_length"},
                  "data.sequence_length is not longer (hybrid eval uses it if its own length is)",
                  KeyTest::Kind::kIsMoreThan)));
    visit(Field{"kept_segments", self.kept_segments,
                "Number of segments at the end of a sequence whose activations are stored instead "
                "of recomputed. More segments take more memory and save time.",
                Range::between(1, 1 << 20)}
              .needs_any(
                  KeyNeed::of({"data.sequence_length"}, {"memory.segment_length"},
                              "sequences are not split into segments; see memory.segment_length",
                              KeyTest::Kind::kIsMoreThan))
              .needs_any({{{"memory.segment_length", KeyTest::Kind::kIsNoneOf, {"0"}},
                           {"data.sequence_length", KeyTest::Kind::kIsMoreThan, {"4096"}}},
                          "sequences are not split into segments; see memory.segment_length"}));
    visit(
        Field{"activations", self.activations,
              "Location of saved activations until backward: device, host, or file (in `folder`).",
              Range{}, placement_names()});
    visit(Field{"activation_bits", self.activation_bits,
                "Bits of stored activations: 32 is exact, 16 rounds to bf16, 8 rounds in blocks of "
                "256. Applies to activations that tolerate small errors in backward.",
                Range::between(8, 32)});
    visit(
        Field{"optimizer_state", self.optimizer_state,
              "Location of the optimizer state between updates: device, host or file. State in "
              "host or file is loaded for the update of each weight, and Predict does not move it.",
              Range{}, placement_names()}
            .essential(Question::kMemory));
    visit(Field{"weights", self.weights,
                "Location of weights while no computation uses them: device, host or file. Weights "
                "in host or file are loaded when a pass uses them. Vectors stay on the device.",
                Range{}, placement_names()});
    visit(Field{"device_map", self.device_map,
                "Location of individual weights, in place of memory.weights: a list of "
                "PATTERN=PLACE, such as h.0.*=device,h.*=host. The first match applies. auto "
                "places blocks in the order of use: on the device up to device_budget, then on the "
                "host up to host_budget, and the rest in a file."});
    visit(Field{"gradients",
                self.gradients,
                "When gradients leave the device. keep: all gradients stay until the update. "
                "consume: each gradient moves to the host, or to a file if weights are in a file, "
                "as soon as backward has computed it. If optimizer.clip_norm, "
                "divergence.max_skipped_updates and phases.max_predict_steps are 0, consume "
                "instead updates each weight immediately and moves nothing.",
                Range{},
                {"keep", "consume"}});
    visit(Field{"gradient_bits", self.gradient_bits,
                "Bits of gradients: 32, or 16 (bf16). 16 requires the asynchronous optimizer "
                "(phases.method) with a delay of 1 and adamw or muon. Pending updates are then "
                "stored with the exact state, also in bf16.",
                Range::between(16, 32)});
    visit(Field{"plan",
                self.plan,
                "off, or auto, which chooses options with which the run fits its budgets. auto "
                "selects the fastest options of this group and of micro-batches once, before the "
                "first step. Without device_budget, the budget is the memory of the machine.",
                Range{},
                {"off", "auto"}}
              .essential(Question::kMemory));
    visit(Field{
        "allow_lossy", self.allow_lossy,
        "Allow a plan to choose options that change results: activations in 8 bits, optimizer "
        "state in 16 or 8 bits, gradients of the asynchronous optimizer in 16 bits."}
              .needs("memory.plan", {"auto"},
                     "it applies only to plans: `hybrid plan`, or memory.plan auto"));
    visit(Field{"folder", self.folder,
                "Folder of the scratch files for tensors with location file; empty uses the "
                "system's folder for temporary files."}
              .needs_any(any_use_of_files()));
    visit(Field{"timeline", self.timeline,
                "Number of steps at the start of each phase whose allocations are written to "
                "memory_timeline.json in the run's folder, for Perfetto and chrome://tracing; 0 "
                "writes no file. The maximum size of the file is 64 MiB.",
                Range::between(0, 1000)});
  }

  bool operator==(const MemoryConfig&) const = default;

  /// Returns `folder`, or the system's folder for temporary files if empty.
  std::string scratch_folder() const;
};

/// Accepted values of PredictAwareMemoryConfig::offload_strategy.
const std::vector<std::string>& offload_strategy_names();

/// Location of the optimizer state while Predict does not need it. Unless the state stays on the
/// device, the predicted direction and the FP32 master weights that have bf16 copies are offloaded
/// to the host too. JSON group `predict_aware_memory`.
struct PredictAwareMemoryConfig {
  std::string offload_strategy = "cpu_offload";

  // Constants:
  bool async_restore = true;  // true: restore during Correct's passes; false: before its update
  /// Steps before Correct at which Predict starts to read the file if host memory has no budget.
  std::int64_t async_restore_lookahead = 5;

  /// Returns settings that keep the state on the device.
  static PredictAwareMemoryConfig conservative();
  /// Returns settings that offload the state to host memory.
  static PredictAwareMemoryConfig balanced();
  /// Returns the defaults, except that a file is read one step ahead instead of five.
  static PredictAwareMemoryConfig aggressive();

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"offload_strategy", self.offload_strategy,
                "Location of the optimizer state during Predict. none: on the device, as are "
                "master weights and direction; all other values move these two to the host. "
                "cpu_offload: on the host. pinned_cpu_offload: in pinned host memory, which CUDA "
                "always uses. nvme_offload: in a file. compress_in_place: rounds each f32 number "
                "to one byte. drop_and_reinitialize: frees the state, which restarts from zeros.",
                Range{}, offload_strategy_names()});
    visit(constant("async_restore", self.async_restore));
    visit(constant("async_restore_lookahead", self.async_restore_lookahead, Range::at_least(1)));
  }
};

}  // namespace hybrid_trainer
