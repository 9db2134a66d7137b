#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// Returns the command of each rank of `hybrid COMMAND ARGUMENTS` with --ranks N.
std::vector<std::string> command_of_rank(const std::string& command,
                                         const std::vector<std::string>& arguments);

/// Runs `command` once for each rank on this machine, with the environment that launched_rank and
/// rendezvous_of read. Forwards SIGINT and SIGTERM, signals within a second as one; a later one also
/// kills the ranks after five seconds. If a rank ends with an error, asks the others to stop, and
/// kills them after five seconds; if one ends because of Ctrl-C, waits for the others. Blocks until
/// all have ended. Returns the exit code of the first rank that failed, RankLost's if a signal
/// killed it; else 0. Throws DeviceError if none starts.
int run_local_ranks(const std::vector<std::string>& command, int ranks);

}  // namespace hybrid_trainer
