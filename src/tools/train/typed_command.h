#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Returns the command line of this process, quoted for a shell.
std::string as_typed(const std::string& command, const std::vector<std::string>& arguments);

/// Returns the command that resumes a run, with these values of --ranks and --export.
std::string resume_command(const std::string& command, const std::string& run,
                           std::optional<int> ranks, const std::string& export_to = {});

/// Returns this process's command line with --resume, which restarts a run in any state.
std::string restart_command(const std::string& command, std::vector<std::string> arguments);

}  // namespace hybrid_trainer
