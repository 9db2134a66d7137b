#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/run/training_run.h"
#include "src/distributed/launched_rank.h"
#include "src/distributed/rank_watch.h"

namespace hybrid_trainer {

/// The ranks that a command trains over: those of a launcher's variables, or none.
class TrainingRanks {
 public:
  /// `local_ranks` of `hybrid COMMAND ARGUMENTS --ranks N`, where it was given: above 1, and unless
  /// this is one of so many, run() starts them on this machine. A launcher's job of one
  /// process, but mpirun's, is a run without ranks. Throws UsageError, ConfigError, DeviceError.
  TrainingRanks(const std::string& command, const std::vector<std::string>& arguments,
                std::optional<int> local_ranks, const HybridTrainerConfig& config);

  /// Trains by settings that each rank first may `complete`, once they know each other, and lets the
  /// leading rank `report`; returns the exit code. An error that rank 0 meets
  /// is thrown on, and ends the job with its process; one that another rank meets alone ends it by
  /// name.
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
  bool alone_ = false;                    // --ranks 1
  int local_ranks_ = 0;                   // that run() starts
  std::vector<std::string> own_command_;  // of each of them
};

/// Runs a command that trains over ranks. What stops it before they know each other stops all of
/// them, mostly: rank 0 tells it, and another one, with its name, only where it is still there some
/// seconds later.
int told_once(const std::function<int()>& command);

/// Whether to go on with a run: `asked` for, or the launcher has started the job anew, which rank 0
/// tells on standard error.
bool goes_on(bool asked);

}  // namespace hybrid_trainer
