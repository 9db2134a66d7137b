#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/run/training_run.h"
#include "src/distributed/launched_rank.h"
#include "src/distributed/rank_watch.h"

namespace hybrid_trainer {

/// Ranks of a training command: from a launcher's variables, started by --ranks, or none.
class TrainingRanks {
 public:
  /// `local_ranks`: --ranks N of `hybrid COMMAND ARGUMENTS`. If it is above 1 and this process is
  /// not one of the ranks, run() starts them on this machine. A launcher's job of one process,
  /// except mpirun's, runs without ranks. Throws UsageError, ConfigError, DeviceError.
  TrainingRanks(const std::string& command, const std::vector<std::string>& arguments,
                std::optional<int> local_ranks, const HybridTrainerConfig& config);

  /// Trains with `settings`. Once the ranks are connected, each rank calls `complete`, if given,
  /// which may change its settings. After training, the lead calls `report`. Returns the exit code.
  /// An error on rank 0 is rethrown and ends the job with its process. An error on only another
  /// rank ends the job, with a message that names the rank.
  int run(TrainingRunSettings settings, const std::function<int(const TrainingRunResult&)>& report,
          const std::function<void(TrainingRunSettings&)>& complete = {}) const;

 private:
  int start_ranks(const TrainingRunSettings& settings) const;
  int run_as_rank(TrainingRunSettings& settings, const Interruption& interruption,
                  const std::function<int(const TrainingRunResult&)>& report,
                  const std::function<void(TrainingRunSettings&)>& complete,
                  std::optional<RankWatch>& watch) const;

  std::optional<LaunchedRank> launched_;
  Device device_;
  bool is_single_rank_ = false;           // --ranks 1
  int local_ranks_ = 0;                   // number that run() starts
  std::vector<std::string> own_command_;  // command of each rank that run() starts
};

/// Runs a command that trains over ranks. An error before ranks connect usually stops all, but only
/// rank 0 reports it. Another rank does, with its number, only if it still runs seconds later.
int report_errors_once(const std::function<int()>& command);

/// Returns whether to resume a run: if `asked`, or if the launcher has restarted the job. Rank 0
/// reports such a restart on standard error.
bool resumes(bool asked);

}  // namespace hybrid_trainer
