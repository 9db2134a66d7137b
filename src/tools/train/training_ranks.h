#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/run/training_run.h"
#include "src/distributed/launched_rank.h"
#include "src/distributed/rank_watch.h"

namespace hybrid_trainer {

/// The ranks of a training command, started by a launcher or --ranks, or a single process.
class TrainingRanks {
 public:
  /// `local_ranks` is --ranks N of `hybrid COMMAND ARGUMENTS`. If it is above 1 and this process is
  /// not one of the ranks, run() starts the ranks on this machine. If a launcher other than mpirun
  /// starts a job of only one process, the process runs without ranks. Throws UsageError,
  /// ConfigError, DeviceError.
  TrainingRanks(const std::string& command, const std::vector<std::string>& arguments,
                std::optional<int> local_ranks, const HybridTrainerConfig& config);

  /// Trains with `settings`. When the ranks are connected, each rank calls `complete`, if it is
  /// given, which may change the settings. After training, the lead calls `report`. Returns the
  /// exit code. Rethrows an error of rank 0, which ends the process and the job. An error that
  /// occurs only on another rank ends the job with a message that names the rank.
  int run(TrainingRunSettings settings, const std::function<int(const TrainingRunResult&)>& report,
          const std::function<void(TrainingRunSettings&)>& complete = {}) const;

 private:
  int run_as_rank(TrainingRunSettings& settings, const Interruption& interruption,
                  const std::function<int(const TrainingRunResult&)>& report,
                  const std::function<void(TrainingRunSettings&)>& complete,
                  std::optional<RankWatch>& watch) const;

  std::optional<LaunchedRank> launched_;
  Device device_;
  bool is_single_rank_ = false;           // --ranks 1
  int local_ranks_ = 0;                   // number of ranks that run() starts
  std::vector<std::string> own_command_;  // command of each rank that run() starts
};

/// Runs a command that trains on several ranks. Only rank 0 reports an error before the ranks
/// connect; another rank does so if it is still running seconds later.
int report_errors_once(const std::function<int()>& command);

/// Returns whether to resume a run. This is the case if `asked` is set or if the launcher has
/// restarted the job. Rank 0 reports a restart on standard error.
bool resumes(bool asked);

}  // namespace hybrid_trainer
