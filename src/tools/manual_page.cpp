#include "src/tools/manual_page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/run_folder/run_files.h"
#include "src/tools/command_table.h"

namespace hybrid_trainer {
namespace {

/// A text that troff prints as it is.
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
  // A line that begins so would be a request.
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

/// Each way to call it on a line of its own.
std::string synopsis(const std::string& usage) {
  std::istringstream lines(usage);
  std::string text;
  for (std::string line; std::getline(lines, line);)
    text += concat(text.empty() ? "" : "\n",
                   line.substr(std::min(line.find_first_not_of(' '), line.size())));
  return text;
}

}  // namespace

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
  std::string page =
      title("hybrid") +
      name_section("hybrid", "train and fine-tune language models on CPUs and NVIDIA GPUs") +
      ".SH SYNOPSIS\n.B hybrid\n.I COMMAND\n[options]\n.SH COMMANDS\n";
  for (const Command& command : command_table())
    page +=
        concat(".TP\n.BR hybrid\\-", plain(command.name), " (1)\n", plain(command.summary), "\n");
  return page;
}

}  // namespace hybrid_trainer
