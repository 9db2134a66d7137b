#include <algorithm>
#include <cctype>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/files/output_file.h"
#include "src/run/run_files.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"

namespace hybrid_trainer {

namespace {

std::string plain(const std::string& text) {
  std::string safe;
  for (const char one : text) {
    if (one == '\\') {
      safe += "\\e";
    } else if (one == '-') {
      safe += "\\-";
    } else {
      safe += one;
    }
  }
  // troff takes lines that begin with these characters for requests.
  std::istringstream lines(safe);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('.') || line.starts_with('\'')) out += "\\&";
    out += line + "\n";
  }
  if (!out.empty()) out.pop_back();
  return out;
}

std::string title(const std::string& name) {
  std::string upper = name;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return concat(".TH ", upper, " 1 \"\" \"hybrid ", project_version(), "\" \"User Commands\"\n");
}

std::string name_section(const std::string& name, const std::string& summary) {
  return concat(".SH NAME\n", plain(name), " \\- ", plain(summary), "\n");
}

/// Returns the usage with each form on a separate line.
std::string synopsis(const std::string& usage) {
  std::istringstream lines(usage);
  std::string text;
  for (std::string line; std::getline(lines, line);)
    text += concat(text.empty() ? "" : "\n",
                   line.substr(std::min(line.find_first_not_of(' '), line.size())));
  return text;
}

/// Returns a command's manual page, hybrid-NAME in section 1, as troff with the macros of man(7).
std::string manual_page(const CommandDescription& command, const std::string& summary) {
  std::string page = title("hybrid-" + command.name) +
                     name_section("hybrid-" + command.name, summary) +
                     concat(".SH SYNOPSIS\n.nf\n.B hybrid ", plain(command.name), "\n",
                            plain(synopsis(command.usage)), "\n.fi\n.SH DESCRIPTION\n",
                            plain(command.text), "\n.SH OPTIONS\n");
  for (const CommandDescription::Option& option : command.options)
    page += concat(".TP\n\\fB\\-\\-", plain(option.name), "\\fR",
                   option.value.empty() ? "" : " \\fI" + plain(option.value) + "\\fR", "\n",
                   plain(option.help), "\n");
  return page + ".SH SEE ALSO\n.BR hybrid (1)\n";
}

std::string manual_of_program() {
  std::string page = title("hybrid") +
                     name_section("hybrid",
                                  "train and fine-tune models of text, speech, images and time "
                                  "series on CPUs and NVIDIA GPUs") +
                     ".SH SYNOPSIS\n.B hybrid\n.I COMMAND\n[options]\n.SH COMMANDS\n";
  for (const Command& command : command_table())
    page +=
        concat(".TP\n.BR hybrid\\-", plain(command.name), " (1)\n", plain(command.summary), "\n");
  return page;
}

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
                           "Prints the manual page of a command, or of hybrid itself, for man(1):\n"
                           "hybrid man finetune | man -l -",
                       .operands = {"COMMAND"}};
  syntax.options.add_options()("output", po::value(&output)->value_name("FOLDER"),
                               "Write the manual pages of all commands to a folder instead.");
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
