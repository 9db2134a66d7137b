#pragma once

#include <optional>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/files/run_directory.h"

namespace hybrid_trainer {

/// Returns whether the run has saved a checkpoint. Before that, its configuration may change.
bool has_checkpoint(const RunPaths& paths);

/// Returns why predictions do not fit in the budgets with any micro-batch size, or nullopt.
std::optional<std::string> why_no_predictions(const HybridTrainerConfig& config, int ranks,
                                              const ModelRegistry& registry);

struct RankCount {
  int all = 1, here = 1;
};

/// Returns the config with the options that memory.plan=auto or memory.device_map=auto chooses, and
/// adds messages about them to `notes`. With memory.plan=auto, a resumed run keeps the choices of
/// its start. Without auto, returns the config unchanged. Throws OutOfMemory if no plan fits, if
/// the run or one of its ranks exceeds its budgets with any micro-batch size, or if a run on a CPU
/// needs more memory than the machine has. Does not allocate the memory.
HybridTrainerConfig with_memory(const HybridTrainerConfig& config, const RunPaths& paths,
                                bool resumes, const RankCount& ranks, const ModelRegistry& registry,
                                std::vector<std::string>& notes);

/// Returns `config` with the memory options that `run` was planned with.
HybridTrainerConfig with_memory_of(const HybridTrainerConfig& run, HybridTrainerConfig config);

/// The current step; nullopt before the first step.
struct RunPosition {
  std::optional<Phase> phase;
  std::int64_t step = 0;
};

/// Writes the error's MemoryShortage, if any, to oom.json, adds the path of this file to the
/// message, and rethrows the error.
[[noreturn]] void throw_with_snapshot(const OutOfMemory& error, const RunPaths& paths,
                                      const RunPosition& moment);

}  // namespace hybrid_trainer
