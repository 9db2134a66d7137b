#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {

/// Peak device memory of one phase, in bytes.
struct PhaseMemory {
  std::size_t peak_bytes = 0;                       // 0: the run never enters the phase
  std::array<std::size_t, kMemoryKinds> by_kind{};  // kinds may peak at different times
};

/// Bytes that a rank sends in a Full step, and bytes that occupy its link. Each call occupies the
/// link for the larger of its bytes sent and received.
struct StepTransfer {
  std::uint64_t bytes_sent = 0, link_bytes = 0;
};

/// Memory need of a run, in bytes.
struct MemoryNeed {
  std::array<PhaseMemory, kPhases> phases;
  PhaseMemory reference;         // forward passes for dpo before Warmup
  std::size_t device_bytes = 0;  // on CUDA, size of one slab with gaps
  std::size_t host_bytes = 0;    // peak of offloaded tensors
  std::size_t disk_bytes = 0;    // size of scratch files
  /// Bytes of each kind between steps. For kinds that exist only during a step, their peak.
  std::array<std::size_t, kMemoryKinds> device_by_kind{}, host_by_kind{}, disk_by_kind{};
  StepTransfer transfer;  // messages between ranks
  const PhaseMemory& phase(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  /// Returns the bytes of each kind at a placement.
  const std::array<std::size_t, kMemoryKinds>& by_kind(const std::string& place) const {
    return place == "device" ? device_by_kind : place == "host" ? host_by_kind : disk_by_kind;
  }
};

/// Selection of phases to simulate.
enum class SimulatedPhases {
  kAll,
  kUpdates,      // Warmup, Full and Correct: faster, without the memory of predictions
  kFirstUpdate,  // only Warmup: fastest, a lower bound of kUpdates
};

/// Selects a rank of a run with several ranks (config.distributed); by default a single process.
struct SimulatedRank {
  int rank = 0, ranks = 1;
};

/// Simulates a run on a simulated device, with updates in each phase's precision, and a Predict
/// phase of maximum length, accepted and reverted. Predict keeps tensors that would exceed
/// memory.host_budget on the device. Excludes the CUDA context, libraries, and the host memory of
/// checkpoints and of the final sample. `listener`: observer of device blocks, or null. Throws
/// OutOfMemory if memory.host_budget is too small, Error for cuda in a build without CUDA.
MemoryNeed simulate_memory(const HybridTrainerConfig& config, Device device,
                           SimulatedPhases phases = SimulatedPhases::kAll,
                           const ModelRegistry& registry = model_families(),
                           SimulatedRank rank = {}, MemoryListener* listener = nullptr);

/// Returns the maximum of each field over all ranks.
MemoryNeed simulate_ranks(const HybridTrainerConfig& config, Device device, int ranks,
                          SimulatedPhases phases = SimulatedPhases::kAll,
                          const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
