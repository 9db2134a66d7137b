#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// Runs `command` once for each rank of this machine, each with what launched_rank and meeting_of
/// read in its environment. SIGINT and SIGTERM are passed on. Where one ends in error, the others
/// are asked to stop, and killed after five seconds; one that ends for Ctrl-C lets the others end by
/// themselves. Blocks until all have ended. Returns the exit code of the first that ended in error,
/// RankLost's where a signal killed it; else 0. Throws DeviceError where none starts.
int run_local_ranks(const std::vector<std::string>& command, int ranks);

}  // namespace hybrid_trainer
