#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// What each rank of `hybrid COMMAND ARGUMENTS`, which have --ranks N, is started by.
std::vector<std::string> command_of_rank(const std::string& program, const std::string& command,
                                         const std::vector<std::string>& arguments);

/// mpirun starts so many ranks by the command; returns when they have ended. `restart_command` is told
/// where they were stopped before they began. Throws DeviceError where there is no mpirun.
int run_by_mpirun(const std::vector<std::string>& command_of_rank, int ranks,
                  const std::string& restart_command);

/// mpirun takes this process's place and starts `hybrid COMMAND ARGUMENTS` as so many ranks. Throws
/// DeviceError.
[[noreturn]] void become_ranks(const std::string& command,
                               const std::vector<std::string>& arguments, int ranks);

}  // namespace hybrid_trainer
