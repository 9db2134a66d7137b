#pragma once

#include <optional>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/files/run_directory.h"

namespace hybrid_trainer {

/// Returns whether the run has saved anything; before that, its configuration may change.
bool has_checkpoint(const RunPaths& paths);

/// Returns why predictions do not fit the budgets in any micro-batches; none if they fit.
std::optional<std::string> why_no_predictions(const HybridTrainerConfig& config, int ranks,
                                              const ModelRegistry& registry);

/// Ranks of a job: in total and on this machine.
struct RankCount {
  int all = 1, here = 1;
};

/// Returns the config with the options that memory.plan=auto or memory.device_map=auto chooses, and
/// adds messages about them to `notes`. With memory.plan=auto, a resumed run keeps the choices of
/// its start. Without auto, returns the config unchanged. Throws OutOfMemory if no plan fits, if
/// the run or one of its ranks cannot stay within its budgets in any micro-batches, or if on a CPU
/// it needs more than the machine has. Allocates none of the memory.
HybridTrainerConfig with_memory(const HybridTrainerConfig& config, const RunPaths& paths,
                                bool resumes, const RankCount& ranks, const ModelRegistry& registry,
                                std::vector<std::string>& notes);

/// Returns `config` with the memory options that `run` was planned with.
HybridTrainerConfig with_memory_of(const HybridTrainerConfig& run, HybridTrainerConfig config);

/// The current step; none before the first.
struct RunPosition {
  std::optional<Phase> phase;
  std::int64_t step = 0;
};

/// Rethrows the error, after writing any MemoryShortage to oom.json and its path to the message.
[[noreturn]] void throw_with_snapshot(const OutOfMemory& error, const RunPaths& paths,
                                      const RunPosition& moment);

}  // namespace hybrid_trainer
