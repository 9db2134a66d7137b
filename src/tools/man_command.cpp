#include <filesystem>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/files/folder.h"
#include "hybrid_trainer/files/output_file.h"
#include "src/tools/command_line.h"
#include "src/tools/command_table.h"
#include "src/tools/commands.h"
#include "src/tools/manual_page.h"

namespace hybrid_trainer {
namespace {

void write_pages(const std::filesystem::path& folder) {
  make_folders(folder);
  replace_file((folder / "hybrid.1").string(), manual_of_program());
  for (const Command& command : command_table())
    replace_file((folder / concat("hybrid-", command.name, ".1")).string(),
                 manual_page(describe(command), command.summary));
}

std::string page_of(const std::string& name) {
  if (name == "hybrid") return manual_of_program();
  std::vector<std::string> names{"hybrid"};
  for (const Command& command : command_table()) {
    if (command.name == name) return manual_page(describe(command), command.summary);
    names.emplace_back(command.name);
  }
  throw UsageError(
      concat("hybrid man: there is no command \"", name, "\"", name_hint(name, names)));
}

}  // namespace

int man_command(const std::vector<std::string>& arguments) {
  std::string output;
  CommandSyntax syntax{.name = "man",
                       .usage = "COMMAND [--output FOLDER]",
                       .description =
                           "Prints a command's manual page, or that of hybrid itself, for man(1):\n"
                           "hybrid man finetune | man -l -",
                       .operands = {"COMMAND"}};
  syntax.options.add_options()("output", po::value(&output)->value_name("FOLDER"),
                               "Write the pages of all commands into a folder instead.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;
  if (!output.empty()) {
    write_pages(output);
  } else {
    std::cout << page_of(operands->front());
  }
  return 0;
}

}  // namespace hybrid_trainer
