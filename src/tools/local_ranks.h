#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// Runs `command` once for each rank of this machine, each with what launched_rank and meeting_of
/// read in its environment. SIGINT and SIGTERM are passed on, those within a second as one. Where one ends in error, the others
/// are asked to stop, and killed after five seconds; one that ends for Ctrl-C lets the others end by
/// themselves. Blocks until all have ended. Returns the exit code of the first that ended in error,
/// RankLost's where a signal killed it; else 0. Throws DeviceError where none starts.
int run_local_ranks(const std::vector<std::string>& command, int ranks);

struct LauncherEnd {
  int exit_code = 0;
  bool was_asked_to_stop = false;
};

/// Runs a launcher of ranks, mpirun, until it ends. The first SIGINT or SIGTERM asks the ranks to
/// stop by SIGUSR1, which leaves them as long as they need; a second one more than a second later is
/// passed on to the launcher, which ends them. Throws DeviceError where the launcher does not start.
LauncherEnd run_launcher(const std::vector<std::string>& command);

}  // namespace hybrid_trainer
