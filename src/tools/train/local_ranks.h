#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// Returns the command that each rank of `hybrid COMMAND ARGUMENTS` with --ranks N runs.
std::vector<std::string> command_of_rank(const std::string& command,
                                         const std::vector<std::string>& arguments);

/// Runs `command` once per rank on this machine, with the environment that launched_rank and
/// rendezvous_of read. Forwards SIGINT and SIGTERM; signals within a second count as one, and a
/// later one also kills the ranks after five seconds. If a rank ends with an error, asks the others
/// to stop, and kills them after five seconds. If a rank ends because of Ctrl-C, waits for the
/// others. Blocks until all have ended. Returns the exit code of the first rank that failed
/// (RankLost's code if a signal killed it), or 0. Throws DeviceError if no rank starts.
int run_local_ranks(const std::vector<std::string>& command, int ranks);

}  // namespace hybrid_trainer
