#pragma once

#include "hybrid_trainer/trainer/memory_simulation.h"
#include "kernels/backend/machine.h"

namespace hybrid_trainer {

/// CUDA device memory that plans leave free for allocations outside the plan. The device's context
/// (0.3 to 0.6 GB) and the kernels of two small products are loaded before the number of free bytes
/// is read. These allocations follow later, with estimated sizes:
///   - cuBLASLt kernels that larger products load at their first run: 0.1 to 0.5 GB
///   - this program's own kernels, loaded at their first launch: 0.05 GB
///   - NCCL's buffers, if there are several ranks: 0.1 to 0.4 GB
///   - CUDA graphs, with training.cuda_graphs: 0.05 GB
///   - temporary operands for timing algorithms of products, which is skipped if memory is short
inline constexpr std::size_t kDeviceMargin = std::size_t{1} << 30;
/// Estimated size of the device's context, used if the number of free bytes cannot be read.
inline constexpr std::size_t kDeviceContext = std::size_t{1} << 29;

/// Returns the memory budget of a run that sets none on a CUDA device: the free memory minus
/// kDeviceMargin. Loads the product library first. Throws DeviceError, OutOfMemory.
std::size_t plannable_device_bytes(Device device);

/// Returns a warning if a budget leaves less than kDeviceMargin of the CUDA device's free memory.
/// Returns "" otherwise, without a budget, and on other devices.
std::string margin_warning(const std::optional<std::size_t>& budget, Device device);

/// Loads the product library, with algorithms for `run`, before device memory is reserved. Does
/// nothing on the CPU. Throws DeviceError, OutOfMemory.
void prepare_device(const Stream& stream, const kernels::ProductRun& run = {});

/// Simulates the run's memory need and reserves it on CUDA as one slab, so that a lack of memory is
/// found before the first step. Throws OutOfMemory, with the advice `hint`, if memory is too small,
/// or if a run without a budget would leave less than half of kDeviceMargin.
void reserve_device_memory(const HybridTrainerConfig& config, const Stream& stream,
                           const std::string& hint,
                           const ModelRegistry& registry = model_families(),
                           SimulatedRank rank = {});

}  // namespace hybrid_trainer
