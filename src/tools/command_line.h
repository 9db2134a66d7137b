#pragma once

#include <boost/json/object.hpp>
#include <boost/program_options.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

namespace po = boost::program_options;

/// Syntax of a sub-command. Options are declared as in Boost.Program_options. They are bound to
/// variables, and marked with ->required() if they are mandatory. parse_command_line adds `--help`.
struct CommandSyntax {
  std::string name;         // "prepare"
  std::string usage;        // text after the name, for example "INPUT... --output DATA [options]"
  std::string description;  // for --help, lines of at most 100 columns
  /// Positional arguments, all of which are mandatory. "INPUT..." takes one or more arguments.
  /// --run RUN may replace the first argument if it can be a run: "RUN|HF_DIR" or "PATH".
  std::vector<std::string> operands{};
  po::options_description options{"Options"};
  /// Name of the option that accepts an empty value; empty if there is none.
  std::string may_be_empty = {};
};

/// Declares an optional option. If it is not given, `to` is empty.
template <class T>
po::typed_value<T>* optional_value(std::optional<T>& to, const char* value_name) {
  return po::value<T>()->value_name(value_name)->notifier([&to](const T& given) { to = given; });
}

/// Returns the operands, with model names resolved by model_path, and stores the options in their
/// bound variables. If --help is given, prints the help and returns nullopt. Throws UsageError for
/// an unknown, missing or invalid argument; the message suggests the nearest option. Throws
/// DescriptionRequested if `--describe` is the only argument.
std::optional<std::vector<std::string>> parse_command_line(
    const CommandSyntax& syntax, const std::vector<std::string>& arguments);

/// Description of a command, from which completions and manual pages are generated.
struct CommandDescription {
  struct Option {
    std::string name;   // without "--"
    std::string value;  // "RUN", or "folder|gguf" for a choice; empty if the option has no value
    std::string help;
    bool is_required = false;
    std::vector<std::string> choices{};  // values for completion; empty if there are none
    bool allows_other_values = true;     // whether other values than the choices are valid
  };
  std::string name, usage, text;
  std::vector<std::string> operands;
  std::vector<Option> options{};  // options, including --help
};

/// Thrown by parse_command_line if `--describe` is the only argument.
struct DescriptionRequested {
  CommandDescription description;
};

CommandDescription describe(const CommandSyntax& syntax);
boost::json::object json_of(const CommandDescription& command);

}  // namespace hybrid_trainer
