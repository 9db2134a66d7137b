#pragma once

#include <optional>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/files/run_directory.h"

namespace hybrid_trainer {

/// Whether anything was saved: before that another configuration breaks no promise.
bool has_checkpoint(const RunPaths& paths);

/// Why the budgets cannot hold a prediction, in any micro-batches; none where they can.
std::optional<std::string> why_no_predictions(const HybridTrainerConfig& config, int ranks,
                                              const ModelRegistry& registry);

/// Ranks of a job, and those of them on this machine.
struct RankCount {
  int all = 1, here = 1;
};

/// The config with the options that memory.plan auto chooses, each told in one line, or that it
/// chose when the run at `paths` began, if that goes on; as it is without it. Throws OutOfMemory
/// where nothing fits, where the run, or one of several ranks, cannot stay in its budgets in any
/// micro-batches, and where on a processor it takes more than the machine has. Takes none of the memory.
HybridTrainerConfig with_memory(const HybridTrainerConfig& config, const RunPaths& paths,
                                bool resumes, const RankCount& ranks, const ModelRegistry& registry,
                                std::vector<std::string>& told);

/// The config with what a run was planned with.
HybridTrainerConfig with_memory_of(const HybridTrainerConfig& run, HybridTrainerConfig config);

/// The step under way; none before the first.
struct RunMoment {
  std::optional<Phase> phase;
  std::int64_t step = 0;
};

/// Throws the error again. Where it knows what held the memory, that is written to the run's
/// oom.json before, and its message names the file.
[[noreturn]] void throw_with_snapshot(const OutOfMemory& error, const RunPaths& paths,
                                      const RunMoment& moment);

}  // namespace hybrid_trainer
