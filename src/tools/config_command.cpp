#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/io/json_fields.h"
#include "src/tools/commands.h"
#include "src/tools/config_arguments.h"

namespace hybrid_trainer {

int config_command(const std::vector<std::string>& arguments) {
  ConfigArguments source;
  bool schema = false, markdown = false;
  CommandSyntax syntax{
      .name = "config",
      .usage = "[--preset NAME | --config FILE] [--set KEY=VALUE]... [--schema | --markdown]",
      .description = "Prints the full configuration as JSON, defaults included.",
      .operands = {}};
  add_config_options(syntax.options, source);
  syntax.options.add_options()("schema", po::bool_switch(&schema),
                               "Print the configuration's JSON schema instead.");
  syntax.options.add_options()("markdown", po::bool_switch(&markdown),
                               "Print docs/CONFIG.md instead: all keys in tables.");
  if (!parse_command_line(syntax, arguments)) return 0;
  if (schema && markdown) throw UsageError("--schema and --markdown are both given; give one");

  const HybridTrainerConfig config = build_config(source);
  if (schema) {
    std::cout << json_schema(config);
  } else if (markdown) {
    std::cout << "# Configuration\n\n"
                 "All keys of a configuration file, which are also the keys of `--set`. This page "
                 "is what\n"
                 "`hybrid config --markdown` prints; a test compares the two.\n\n"
              << config_markdown(config);
  } else {
    std::cout << config_json(config);
  }
  return 0;
}

}  // namespace hybrid_trainer
