#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// The command line of this process, as it may be pasted into a shell.
std::string as_typed(const std::string& command, const std::vector<std::string>& arguments);

/// What goes on with a run; `ranks` and `export_to` are what --ranks and --export were given.
std::string resume_command(const std::string& command, const std::string& run,
                           std::optional<int> ranks, const std::string& export_to = {});

/// The command line of this process with --resume: starts a run again, whatever is left of it.
std::string restart_command(const std::string& command, std::vector<std::string> arguments);

}  // namespace hybrid_trainer
