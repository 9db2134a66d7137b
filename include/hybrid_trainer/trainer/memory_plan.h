#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/trainer/memory_simulation.h"

namespace hybrid_trainer {

/// Speeds of this machine at a step's parts.
struct StepRates {
  double flops_per_second = 0;       // of the blocks of a model, forward and backward
  double copy_bytes_per_second = 0;  // read and written, in memory or to and from the device
  double write_bytes_per_second = 0, read_bytes_per_second = 0;  // of files in memory.folder
};

/// Measures them on `stream` in about a second: blocks of the config's width, copies and, where the
/// config names a folder, a file in it; its rates are 0 without one. Takes up to 600 MB for that
/// time. Throws CannotCreate where the folder takes no file.
StepRates measure_step_rates(const HybridTrainerConfig& config, const Stream& stream,
                             const ModelRegistry& registry = model_families());

/// A key of the config that a plan sets.
struct PlannedOption {
  std::string key;    // "memory.recompute"
  std::string value;  // as --set takes it
};

struct MemoryPlan {
  bool fits = false;
  /// Need of the config as given if that fits, else of the options; if nothing fits, of those that
  /// take least.
  MemoryNeed need;
  std::vector<PlannedOption> options;  // none where the config fits as given
  HybridTrainerConfig config;          // with the options
  double step_seconds = 0;             // of products, update and transfers at the measured rates
  double expected_slowdown = 1;        // these, over those with everything resident
  std::size_t missing_bytes = 0;       // see missing_bytes(), where nothing fits
  /// Largest data.batch_size that fits with the options; 0 where nothing does, or there is no
  /// budget.
  std::int64_t largest_batch = 0;
};

struct MemoryBudgets {
  std::optional<std::size_t> device{}, host{}, disk{};  // none: no limit
  /// Budget of device and host together, if both are the machine's memory.
  std::optional<std::size_t> both{};
};

/// Memory that the machine has for a run on `device`: on a processor both are its memory, so their
/// sum is limited, unless the configuration says of each how much there is.
std::optional<std::size_t> memory_of_both(const HybridTrainerConfig& config, Device device);

/// By how much a need exceeds the budgets: of device, host, disk, and of device and host together.
std::size_t missing_bytes(const MemoryNeed& need, const MemoryBudgets& budgets);

/// Free space of memory.folder; none where the config names no folder.
std::optional<std::size_t> free_disk_space(const HybridTrainerConfig& config);

/// Whether parts say how much of their activations is computed again.
bool recomputes_parts(const HybridTrainerConfig& config);

/// The cheapest settings of the `memory` group and of micro-batches under which the config's run
/// stays in the budgets, of all valid combinations that take at most what the config's own take; with
/// memory.allow_lossy also those that change bits. Files are places where the rates know how fast
/// they are. Equally cheap ones: the fewer. Allocates none of what it plans.
MemoryPlan plan_memory(const HybridTrainerConfig& config, Device device,
                       const MemoryBudgets& budgets, const StepRates& rates,
                       const ModelRegistry& registry = model_families());

/// Whether the model could go in segments and memory.segment_length, which no plan sets, is not set.
bool could_go_in_segments(const HybridTrainerConfig& config,
                          const ModelRegistry& registry = model_families());

/// The config with places for memory.device_map "auto": in the order in which a pass uses them, as many
/// of embeddings, blocks and head on the device as fit its budget, then as many on the host as fit
/// that of the host, the rest in a file. Another map stays.
HybridTrainerConfig with_device_map(const HybridTrainerConfig& config, Device device,
                                    const MemoryBudgets& budgets, const ModelRegistry& registry);

}  // namespace hybrid_trainer
