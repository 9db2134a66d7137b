#pragma once

#include "hybrid_trainer/trainer/memory_simulation.h"

namespace hybrid_trainer {

/// Measured speeds of this machine for the parts of a step.
struct StepRates {
  double flops_per_second = 0;       // forward and backward passes of a model's blocks
  double copy_bytes_per_second = 0;  // counts bytes read and written
  double write_bytes_per_second = 0, read_bytes_per_second = 0;  // files in memory.folder
};

/// Measures the rates on `stream` in about a second, in up to 600 MB of memory. File rates are 0 if
/// the config uses no files. Throws CannotCreate if memory.folder is not writable.
StepRates measure_step_rates(const HybridTrainerConfig& config, const Stream& stream,
                             const ModelRegistry& registry = model_families());

/// A config key set by a plan.
struct PlannedOption {
  std::string key;    // "memory.recompute"
  std::string value;  // in the format of --set
};

struct MemoryPlan {
  bool fits = false;
  /// Memory need with `options`, or the smallest need if no options fit.
  MemoryNeed need;
  std::vector<PlannedOption> options;  // empty if the config fits as given
  HybridTrainerConfig config;          // the given config with the options
  double step_seconds = 0;             // at the measured rates
  double expected_slowdown = 1;        // relative to all tensors on the device
  std::size_t missing_bytes = 0;       // result of missing_bytes() if no options fit, else 0
  std::int64_t largest_batch = 0;      // largest data.batch_size that fits; 0: none
};

struct MemoryBudgets {
  std::optional<std::size_t> device{}, host{}, disk{};  // none: no limit
  /// Joint budget of device and host if both use the machine's memory.
  std::optional<std::size_t> both{};
};

/// Returns the joint memory of device and host on a CPU; none for other devices, if the config sets
/// both budgets, or if the memory is unknown.
std::optional<std::size_t> memory_of_both(const HybridTrainerConfig& config, Device device);

/// Returns the bytes beyond the budgets: the sum of all excesses, or the joint excess if it is
/// larger.
std::size_t missing_bytes(const MemoryNeed& need, const MemoryBudgets& budgets);

/// Returns the free space of memory.folder, or nullopt if the config names no folder.
std::optional<std::size_t> free_disk_space(const HybridTrainerConfig& config);

bool recomputes_parts(const HybridTrainerConfig& config);

/// Returns the fastest settings of `memory` and of micro-batches that fit the budgets, among all
/// that need no more memory than the config; of equally fast ones, those with the fewest options.
/// memory.allow_lossy adds settings that change results. Allocates none of the planned memory.
MemoryPlan plan_memory(const HybridTrainerConfig& config, Device device,
                       const MemoryBudgets& budgets, const StepRates& rates,
                       const ModelRegistry& registry = model_families());

/// Returns whether the model supports segments and memory.segment_length is unset. Plans never set
/// this key, but `hybrid plan` suggests it if no plan fits.
bool supports_segments(const HybridTrainerConfig& config,
                       const ModelRegistry& registry = model_families());

/// Resolves memory.device_map "auto". Places weights in the order of a forward pass: first on the
/// device, then on the host, up to their budgets, and the rest in a file.
HybridTrainerConfig with_device_map(const HybridTrainerConfig& config, Device device,
                                    const MemoryBudgets& budgets, const ModelRegistry& registry);

}  // namespace hybrid_trainer
