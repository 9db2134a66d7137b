#pragma once

#include <boost/json/object.hpp>
#include <boost/program_options.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

namespace po = boost::program_options;

/// Syntax of a sub-command. Options are declared as in Boost.Program_options, bound to variables
/// and marked with ->required() if mandatory. parse_command_line adds `--help`.
struct CommandSyntax {
  std::string name;         // "prepare"
  std::string usage;        // text after the name: "INPUT... --output DATA [options]"
  std::string description;  // for --help, lines of at most 100 columns
  /// Positional arguments, all mandatory; "INPUT..." takes one or more. --run RUN may replace the
  /// first one if that can be a run: "RUN|HF_DIR" or "PATH".
  std::vector<std::string> operands;
  po::options_description options{"Options"};
  std::string may_be_empty = {};  // the option that takes an empty value, if any
};

/// Declares an option that may be left out. Then `to` is empty.
template <class T>
po::typed_value<T>* optional_value(std::optional<T>& to, const char* value_name) {
  return po::value<T>()->value_name(value_name)->notifier([&to](const T& given) { to = given; });
}

/// Returns the operands, with model names resolved by model_path, and stores the options in their
/// bound variables. Returns none after printing --help. Throws UsageError for an unknown, missing
/// or invalid argument, suggesting the nearest option. Throws DescriptionRequested if `--describe`
/// is the only argument.
std::optional<std::vector<std::string>> parse_command_line(
    const CommandSyntax& syntax, const std::vector<std::string>& arguments);

/// Description of a command, the source of completions and manual pages.
struct CommandDescription {
  struct Option {
    std::string name;   // without "--"
    std::string value;  // "RUN"; "folder|gguf" for a choice; empty: no value
    std::string help;
    bool is_required = false;
    std::vector<std::string> choices{};  // values to complete; empty: any value
    bool allows_other_values = true;     // values other than the choices are valid, too
  };
  std::string name, usage, text;
  std::vector<std::string> operands;
  std::vector<Option> options;  // with --help
};

/// Thrown by parse_command_line if `--describe` is the only argument.
struct DescriptionRequested {
  CommandDescription description;
};

CommandDescription describe(const CommandSyntax& syntax);
boost::json::object json_of(const CommandDescription& command);

}  // namespace hybrid_trainer
