#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

/// Peak device memory of one phase, in bytes.
struct PhaseMemory {
  std::size_t peak_bytes = 0;  // 0: the run never enters it
  /// Peak of each kind. Different kinds may have their peaks at different times.
  std::array<std::size_t, kMemoryKinds> by_kind{};
};

/// Bytes that a rank sends in a Full step, and bytes that occupy its link. A call occupies the link
/// with the larger of the bytes sent and received.
struct StepTransfer {
  std::uint64_t bytes_sent = 0, link_bytes = 0;
};

/// Memory need of a run, in bytes.
struct MemoryNeed {
  std::array<PhaseMemory, kPhases> phases;
  /// Memory of the forward passes before Warmup that compute the reference of objective dpo.
  PhaseMemory reference;
  std::size_t device_bytes = 0;  // peak; on CUDA as one allocation, including gaps between blocks
  std::size_t host_bytes = 0;    // for offloaded tensors, peak
  std::size_t disk_bytes = 0;    // of scratch files
  /// Bytes of each kind: between steps, or the peak for kinds that exist only during a step.
  std::array<std::size_t, kMemoryKinds> device_by_kind{}, host_by_kind{}, disk_by_kind{};
  StepTransfer transfer;  // messages between ranks
  const PhaseMemory& phase(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  /// Returns the bytes by kind at a placement.
  const std::array<std::size_t, kMemoryKinds>& by_kind(const std::string& place) const {
    return place == "device" ? device_by_kind : place == "host" ? host_by_kind : disk_by_kind;
  }
};

/// Selection of phases to simulate.
enum class SimulatedPhases {
  kAll,
  kUpdates,      // Warmup, Full and Correct: faster, without the memory of predictions
  kFirstUpdate,  // only of Warmup: fastest, a lower bound of kUpdates
};

/// Selects a rank of a run with several ranks (config.distributed); by default a single process.
struct SimulatedRank {
  int rank = 0, ranks = 1;
};

/// Simulates a run of the config's model by making the same calls on a simulated `device`, which
/// has no memory and computes nothing. Covers updates in each phase's precision, and a Predict
/// phase of the maximum length, both accepted and reverted. `device` is cpu or cuda; throws Error
/// for cuda in a build without CUDA. Tensors of Predict that exceed memory.host_budget stay on the
/// device. Throws OutOfMemory if the budget has no room for tensors that must be on the host. Reads
/// no data and no folder. Excludes the CUDA context, libraries, and the host memory of checkpoints
/// and the final sample. `listener` receives the device blocks, or is null.
MemoryNeed simulate_memory(const HybridTrainerConfig& config, Device device,
                           SimulatedPhases phases = SimulatedPhases::kAll,
                           const ModelRegistry& registry = model_families(),
                           SimulatedRank rank = {}, MemoryListener* listener = nullptr);

/// Returns the maximum of each field over all ranks.
MemoryNeed simulate_ranks(const HybridTrainerConfig& config, Device device, int ranks,
                          SimulatedPhases phases = SimulatedPhases::kAll,
                          const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
