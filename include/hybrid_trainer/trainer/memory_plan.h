#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/trainer/memory_simulation.h"

namespace hybrid_trainer {

/// Measured speeds of this machine for the parts of a step.
struct StepRates {
  double flops_per_second = 0;       // forward and backward passes of a model's blocks
  double copy_bytes_per_second = 0;  // bytes read and written, in memory or between host and device
  double write_bytes_per_second = 0, read_bytes_per_second = 0;  // files in memory.folder
};

/// Measures the rates on `stream` in about a second, with blocks of the config's width, with
/// copies, and with a file if the config uses files; otherwise the file rates are 0. Temporarily
/// uses up to 600 MB. Throws CannotCreate if the folder is not writable.
StepRates measure_step_rates(const HybridTrainerConfig& config, const Stream& stream,
                             const ModelRegistry& registry = model_families());

/// A config key set by a plan.
struct PlannedOption {
  std::string key;    // "memory.recompute"
  std::string value;  // in the format of --set
};

struct MemoryPlan {
  bool fits = false;
  /// Memory need of the config as given if it fits, else with `options`. If nothing fits, with the
  /// options that need the least memory.
  MemoryNeed need;
  std::vector<PlannedOption> options;  // empty if the config fits as given
  HybridTrainerConfig config;          // with the options
  double step_seconds = 0;             // products, update and transfers at the measured rates
  double expected_slowdown = 1;        // step_seconds relative to a step with all data resident
  std::size_t missing_bytes = 0;       // result of missing_bytes() if nothing fits, else 0
  /// Largest data.batch_size that fits with the options; 0 if nothing fits or there is no budget.
  std::int64_t largest_batch = 0;
};

struct MemoryBudgets {
  std::optional<std::size_t> device{}, host{}, disk{};  // none: no limit
  /// Joint budget of device and host, if both use the machine's memory.
  std::optional<std::size_t> both{};
};

/// Returns the memory that device and host may use together in a run on a CPU, since they share the
/// machine's memory. Returns none for other devices, if the config sets both budgets, or if the
/// memory is unknown.
std::optional<std::size_t> memory_of_both(const HybridTrainerConfig& config, Device device);

/// Returns by how many bytes a need exceeds the budgets: in total over device, host and disk, or
/// the joint budget of device and host, whichever is more.
std::size_t missing_bytes(const MemoryNeed& need, const MemoryBudgets& budgets);

/// Returns the free space of memory.folder; none if the config names no folder.
std::optional<std::size_t> free_disk_space(const HybridTrainerConfig& config);

/// Returns whether any part sets its share of recomputed activations.
bool recomputes_parts(const HybridTrainerConfig& config);

/// Returns the fastest settings of the `memory` group and of micro-batches that fit the budgets,
/// among all valid combinations that need at most the given config's memory. memory.allow_lossy
/// adds settings that change results. Uses files only if `rates` has file rates. Of equally fast
/// plans, the one with the fewest options wins. Allocates none of this memory.
MemoryPlan plan_memory(const HybridTrainerConfig& config, Device device,
                       const MemoryBudgets& budgets, const StepRates& rates,
                       const ModelRegistry& registry = model_families());

/// Returns whether the model supports segments but memory.segment_length is unset. Plans never set
/// it.
bool supports_segments(const HybridTrainerConfig& config,
                       const ModelRegistry& registry = model_families());

/// Resolves memory.device_map "auto". Places embeddings, blocks and head, in the order of a pass,
/// on the device, then the host, up to their budgets, and the rest in a file. Keeps other maps.
HybridTrainerConfig with_device_map(const HybridTrainerConfig& config, Device device,
                                    const MemoryBudgets& budgets, const ModelRegistry& registry);

}  // namespace hybrid_trainer
