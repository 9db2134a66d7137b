#include "src/tools/train/typed_command.h"

#include <algorithm>
#include <fstream>

#include "src/core/messages.h"

namespace hybrid_trainer {

namespace {

/// Returns the program as it was called: "build/bin/hybrid".
std::string program() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string name;
  std::getline(in, name, '\0');
  return name.empty() ? "hybrid" : name;
}

}  // namespace

std::string as_typed(const std::string& command, const std::vector<std::string>& arguments) {
  std::string text = shell_word(program()) + " " + command;
  for (const std::string& argument : arguments) text.append(" ").append(shell_word(argument));
  return text;
}

std::string resume_command(const std::string& command, const std::string& run,
                           std::optional<int> ranks, const std::string& export_to) {
  std::vector<std::string> arguments{"--resume", "--run", run};
  if (ranks) arguments.insert(arguments.end(), {"--ranks", std::to_string(*ranks)});
  if (!export_to.empty()) arguments.insert(arguments.end(), {"--export", export_to});
  return as_typed(command, arguments);
}

std::string restart_command(const std::string& command, std::vector<std::string> arguments) {
  if (std::ranges::count(arguments, "--resume") == 0) arguments.emplace_back("--resume");
  return as_typed(command, arguments);
}

}  // namespace hybrid_trainer
