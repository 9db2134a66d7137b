#pragma once

#include "hybrid_trainer/trainer/memory_simulation.h"
#include "kernels/backend/machine.h"

namespace hybrid_trainer {

/// CUDA device memory that plans leave free, for memory that the run's own plan does not include.
/// The device's context (0.3 to 0.6 GB) and the kernels of two small products are loaded already
/// when the number of free bytes is read. These are allocated later, with estimated sizes:
///   - cuBLASLt kernels that larger products load at their first run: 0.1 to 0.5 GB
///   - this program's own kernels, loaded at their first launch: 0.05 GB
///   - NCCL's buffers, if there are several ranks: 0.1 to 0.4 GB
///   - CUDA graphs, with training.cuda_graphs: 0.05 GB
///   - temporary operands for timing a product's algorithms; without room, timing is skipped
inline constexpr std::size_t kDeviceMargin = std::size_t{1} << 30;
/// Estimated size of the device's context, if the free bytes cannot be read.
inline constexpr std::size_t kDeviceContext = std::size_t{1} << 29;

/// Returns the memory that a run without a budget may plan with on a CUDA device: its free memory
/// less the margin. Loads the product library first. Throws DeviceError, OutOfMemory.
std::size_t plannable_device_bytes(Device device);

/// Returns a warning if a budget leaves less of the CUDA device's free memory than the margin.
/// Returns an empty text otherwise, without a budget, and on other devices.
std::string margin_warning(const std::optional<std::size_t>& budget, Device device);

/// Loads the product library, with algorithms for `run`, before device memory is reserved. Does
/// nothing on the CPU. Throws DeviceError, OutOfMemory.
void prepare_device(const Stream& stream, const kernels::ProductRun& run = {});

/// Simulates the memory need of the config's run and reserves it on CUDA as one slab of the
/// stream's pool, so that the first step cannot fail for a foreseeable reason. Does nothing on the
/// CPU. Throws OutOfMemory if there is not enough, or if a run without a budget would leave less
/// than half the margin; `hint` is the advice in its message.
void reserve_device_memory(const HybridTrainerConfig& config, const Stream& stream,
                           const std::string& hint,
                           const ModelRegistry& registry = model_families(),
                           SimulatedRank rank = {});

}  // namespace hybrid_trainer
