#pragma once

#include <boost/json/object.hpp>
#include <boost/program_options.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

namespace po = boost::program_options;

/// What one sub-command takes. Options are declared as in Boost.Program_options, bound to the
/// command's variables and, if they are mandatory, marked with ->required(). parse_command_line
/// adds `--help`.
struct CommandSyntax {
  std::string name;         // "prepare"
  std::string usage;        // what follows the name: "INPUT... --output DATA [options]"
  std::string description;  // for --help, lines of at most 100 columns
  /// Arguments that are not options, all mandatory; "INPUT..." takes one or more.
  std::vector<std::string> operands;
  po::options_description options{"Options"};
  std::string may_be_empty = {};  // the option that takes an empty value, if any
};

/// The value of an option that may be left out; `to` is empty then.
template <class T>
po::typed_value<T>* optional_value(std::optional<T>& to, const char* value_name) {
  return po::value<T>()->value_name(value_name)->notifier([&to](const T& given) { to = given; });
}

/// The operands, those that may be models as model_path has them; the options are in the variables
/// they are bound to. None if --help was given and
/// has been printed. Throws UsageError that names what is unknown, missing or unreadable, with the
/// nearest option. Where `--describe` is the only argument, throws DescriptionAsked
/// (CommandDescription).
std::optional<std::vector<std::string>> parse_command_line(
    const CommandSyntax& syntax, const std::vector<std::string>& arguments);

/// What a command says of itself: completions and manual pages are made of it.
struct CommandDescription {
  struct Option {
    std::string name;   // without "--"
    std::string value;  // "RUN"; "folder|gguf" where it is one of these; empty: it takes none
    std::string help;
    bool is_required = false;
    std::vector<std::string> choices{};  // words that the value may be; empty: others, too
    bool takes_others = true;            // than the choices
  };
  std::string name, usage, text;
  std::vector<std::string> operands;
  std::vector<Option> options;  // with --help
};

/// Thrown by parse_command_line where `--describe` is the only argument.
struct DescriptionAsked {
  CommandDescription description;
};

CommandDescription describe(const CommandSyntax& syntax);
boost::json::object json_of(const CommandDescription& command);

}  // namespace hybrid_trainer
