#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

/// Device memory that one phase needs at most, in bytes.
struct PhaseMemory {
  std::size_t peak_bytes = 0;  // 0: the run never comes into it
  /// The highest of each kind, not all at the same moment.
  std::array<std::size_t, kMemoryKinds> by_kind{};
};

/// Bytes that one of several ranks sends in a Full step, and that its link is busy with: of each
/// call those sent or received, whichever are more.
struct StepTransfer {
  std::uint64_t bytes_sent = 0, link_bytes = 0;
};

/// Need of a run, in bytes.
struct MemoryNeed {
  std::array<PhaseMemory, kPhases> phases;
  /// Of the forward passes before Warmup that compute the reference of objective dpo.
  PhaseMemory reference;
  std::size_t device_bytes = 0;  // at once; on CUDA in one piece, with the gaps between its blocks
  std::size_t host_bytes = 0;    // beside the device, for what is kept out of its memory
  std::size_t disk_bytes = 0;    // of scratch files
  /// Of each kind, what lies there between steps; of what only a step has, the most.
  std::array<std::size_t, kMemoryKinds> device_by_kind{}, host_by_kind{}, disk_by_kind{};
  StepTransfer transfer;  // over ranks
  const PhaseMemory& phase(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  /// What lies at one of placement_names(), by kind.
  const std::array<std::size_t, kMemoryKinds>& by_kind(const std::string& place) const {
    return place == "device" ? device_by_kind : place == "host" ? host_by_kind : disk_by_kind;
  }
};

/// Which phases are simulated.
enum class SimulatedPhases {
  kAll,
  kUpdates,      // Warmup, Full and Correct: quicker, and without what predicting takes
  kFirstUpdate,  // of Warmup alone: quickest, and no more than what kUpdates takes
};

/// One of several ranks, which share a run as config.distributed says; alone, none.
struct SimulatedRank {
  int rank = 0, ranks = 1;
};

/// Goes through a run of the config's model with the same calls, on a simulated `device` that has
/// no memory and runs nothing: updates in each phase's precision, and a Predict phase as long as the
/// config allows, which is kept and which is reverted. `device` is cpu or cuda; in a build without
/// CUDA, the latter throws Error. What Predict finds no room for within memory.host_budget stays on
/// the device; OutOfMemory where the budget does not hold what must be on the host. Neither data nor a folder is touched. Not included: the CUDA
/// context, libraries, and what checkpoints and the final sample take of the host. `listener` is told of the blocks
/// on the device; null: nobody is.
MemoryNeed simulate_memory(const HybridTrainerConfig& config, Device device,
                           SimulatedPhases phases = SimulatedPhases::kAll,
                           const ModelRegistry& registry = model_families(),
                           SimulatedRank rank = {}, MemoryListener* listener = nullptr);

/// The most of each that any of several ranks takes.
MemoryNeed simulate_ranks(const HybridTrainerConfig& config, Device device, int ranks,
                          SimulatedPhases phases = SimulatedPhases::kAll,
                          const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
