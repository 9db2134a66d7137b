#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// The command of each rank of `hybrid COMMAND ARGUMENTS`, which have --ranks N.
std::vector<std::string> command_of_rank(const std::string& command,
                                         const std::vector<std::string>& arguments);

/// Runs `command` once for each rank of this machine, each with what launched_rank and meeting_of
/// read in its environment. Passes SIGINT and SIGTERM on, those within a second as one; a later one
/// also kills the ranks after five seconds. If one ends in error, the others are asked to stop, and
/// killed after five seconds; one that ends for Ctrl-C lets the others end by themselves. Blocks
/// until all have ended. Returns the exit code of the first that ended in error, RankLost's if a
/// signal killed it; else 0. Throws DeviceError if none starts.
int run_local_ranks(const std::vector<std::string>& command, int ranks);

}  // namespace hybrid_trainer
