#include <iostream>

#include "hybrid_trainer/config/placement.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/io/json_fields.h"
#include "src/tools/commands.h"
#include "src/tools/config_arguments.h"
#include "src/tools/essential_keys.h"

namespace hybrid_trainer {

int config_command(const std::vector<std::string>& arguments) {
  ConfigArguments source;
  bool schema = false, markdown = false, essential = false;
  CommandSyntax syntax{.name = "config",
                       .usage =
                           "[--preset NAME | --config FILE] [--set KEY=VALUE]... "
                           "[--essential | --schema | --markdown]",
                       .description = "Prints the full configuration as JSON, defaults included.",
                       .operands = {}};
  add_config_options(syntax.options, source);
  syntax.options.add_options()("essential", po::bool_switch(&essential),
                               "Print the keys that most users need instead, by question.");
  syntax.options.add_options()("schema", po::bool_switch(&schema),
                               "Print the configuration's JSON schema instead.");
  syntax.options.add_options()("markdown", po::bool_switch(&markdown),
                               "Print docs/CONFIG.md instead: all keys in tables.");
  if (!parse_command_line(syntax, arguments)) return 0;
  if (schema + markdown + essential > 1)
    throw UsageError("give one of --essential, --schema and --markdown");

  const HybridTrainerConfig config = build_config(source);
  if (essential) {
    std::cout << essential_text(config);
  } else if (schema) {
    std::cout << json_schema(config);
  } else if (markdown) {
    std::cout << "# Configuration\n\n"
                 "All keys of a configuration file, which are also the keys of `--set`. This page "
                 "is what\n"
                 "`hybrid config --markdown` prints; a test compares the two.\n\n"
              << essential_markdown(config) << "\n## Where things lie\n\n"
              << "Between its uses. `hybrid plan` prints the same of a run, with bytes.\n\n"
              << placement_markdown() << "\n## All keys\n\n"
              << config_markdown(config);
  } else {
    std::cout << config_json(config);
  }
  return 0;
}

}  // namespace hybrid_trainer
