#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// Returns the command that each rank of `hybrid COMMAND ARGUMENTS` with --ranks N runs.
std::vector<std::string> command_of_rank(const std::string& command,
                                         const std::vector<std::string>& arguments);

/// Runs `command` once per rank on this machine, with the environment that launched_rank and
/// rendezvous_of read. Forwards SIGINT and SIGTERM. Signals within one second count as one signal;
/// a later signal also kills the ranks after five seconds. If a rank ends with an error, asks the
/// other ranks to stop, and kills them after five seconds. If a rank ends because of Ctrl-C, waits
/// for the other ranks. Blocks until all ranks have ended. Returns 0, or the exit code of the first
/// rank that failed (the code of RankLost if a signal killed it). Throws DeviceError if no rank
/// starts.
int run_local_ranks(const std::vector<std::string>& command, int ranks);

}  // namespace hybrid_trainer
