#pragma once

#include "hybrid_trainer/trainer/memory_simulation.h"
#include "kernels/backend/machine.h"

namespace hybrid_trainer {

/// Memory of a CUDA device that a plan leaves free beside the run's own. When free bytes are read,
/// the device's context is there already (0.3 to 0.6 GB), and so is what two small products load.
/// Still to come, as estimated:
///   - kernels of cuBLASLt that its larger products load when they first run: 0.1 to 0.5 GB
///   - this program's own kernels, also loaded at their first launch: 0.05 GB
///   - NCCL's buffers, if there are several ranks: 0.1 to 0.4 GB
///   - CUDA graphs, with training.cuda_graphs: 0.05 GB
///   - for moments, a product's operands on which algorithms are timed; where they do not fit,
///     nothing is timed, and the run goes on
inline constexpr std::size_t kDeviceMargin = std::size_t{1} << 30;
/// The device's context, as estimated, for a device whose free bytes cannot be read.
inline constexpr std::size_t kDeviceContext = std::size_t{1} << 29;

/// What a run without a budget may plan with on a CUDA device: its free memory less the margin. Loads
/// the library of products first. Throws DeviceError, OutOfMemory.
std::size_t plannable_device_bytes(Device device);

/// Says that a budget leaves less than the margin of the CUDA device's free memory; empty where it
/// leaves as much, where there is no budget, and elsewhere.
std::string margin_warning(const std::optional<std::size_t>& budget, Device device);

/// Loads the library of products, with algorithms for `run`, before the device's memory is taken.
/// Nothing on a processor. Throws DeviceError, OutOfMemory.
void prepare_device(const Stream& stream, const kernels::ProductRun& run = {});

/// On CUDA takes what the config's run needs, as simulated, in one slab of the stream's pool.
/// Afterwards the first step finds out nothing that could have been known before. Nothing on a
/// processor. Throws OutOfMemory where it is not there, or where a run without a budget would leave
/// less than half the margin; `way_out` says what to try then.
void reserve_device_memory(const HybridTrainerConfig& config, const Stream& stream,
                           const std::string& way_out,
                           const ModelRegistry& registry = model_families(),
                           SimulatedRank rank = {});

}  // namespace hybrid_trainer
