#include <iostream>

#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/completion.h"

namespace hybrid_trainer {

int completion_command(const std::vector<std::string>& arguments) {
  const CommandSyntax syntax{
      .name = "completion",
      .usage = "bash|zsh|fish",
      .description =
          "Prints a script that lets a shell complete commands, options and keys.\n"
          "In bash: source <(hybrid completion bash)",
      .operands = {"SHELL"}};
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;
  std::cout << completion_script(operands->front());
  return 0;
}

}  // namespace hybrid_trainer
