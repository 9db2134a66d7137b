#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "src/tools/command_line.h"

namespace hybrid_trainer {

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
