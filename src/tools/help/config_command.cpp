#include <algorithm>
#include <iostream>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "src/config/placement.h"
#include "src/files/config_fields.h"
#include "src/tools/commands.h"
#include "src/tools/config_arguments.h"

namespace hybrid_trainer {

namespace {

constexpr std::pair<Question, const char*> kAsked[] = {{Question::kModel, "What do I train?"},
                                                       {Question::kData, "On what?"},
                                                       {Question::kLength, "How long?"},
                                                       {Question::kSpeed, "How fast?"},
                                                       {Question::kMemory, "In how much memory?"}};

struct Row {
  std::string key, value, help;
};

std::string whole_first_sentence(const std::string& help) {
  const std::size_t end = help.find(". ");
  return end == std::string::npos ? help : help.substr(0, end + 1);
}

std::vector<Row> rows_of(Question question, const FieldNode& group, const std::string& path = "") {
  std::vector<Row> rows;
  for (const FieldNode& field : group.fields) {
    const std::string key = path + field.name;
    if (field.is_group())
      for (Row& row : rows_of(question, field, key + ".")) rows.push_back(std::move(row));
    if (field.question == question)
      rows.push_back({key, field_text(field), whole_first_sentence(field.help)});
  }
  return rows;
}

std::string essential_text(const HybridTrainerConfig& config) {
  const FieldNode tree = field_tree(config);
  std::string text;
  for (const auto& [question, title] : kAsked) {
    text += concat(text.empty() ? "" : "\n", title, "\n");
    for (const Row& row : rows_of(question, tree)) {
      const std::string padded = row.key + std::string(37 - row.key.size(), ' ');
      const std::size_t width = std::max<std::size_t>(8, row.value.size());
      text += concat("  ", padded, row.value, std::string(width - row.value.size() + 1, ' '),
                     row.help, "\n");
    }
  }
  return text +
         "\nChange a key with --set KEY=VALUE; `hybrid config --markdown` explains all keys.\n";
}

std::string essential_markdown(const HybridTrainerConfig& config) {
  const FieldNode tree = field_tree(config);
  std::string text =
      "## The essential keys\n"
      "\n"
      "Most users need only these keys; `hybrid config --essential` prints them.\n"
      "\n";
  for (const auto& [question, title] : kAsked) {
    text += concat("**", title, "**\n\n| key | default | meaning |\n| --- | --- | --- |\n");
    for (const Row& row : rows_of(question, tree))
      text += concat("| `", row.key, "` | `", row.value, "` | ", row.help, " |\n");
    text += "\n";
  }
  return text;
}

std::string families_markdown() {
  const ModelConfig model;
  const FieldNode tree = field_tree(model);
  std::string text =
      "## Families\n"
      "\n"
      "A model has the keys `family`, `layers`, `width`, `context` and `vocabulary`, a language\n"
      "model also `pooling`, and the keys of its family; other keys are refused.\n"
      "`hybrid config --preset vit-tiny --markdown` explains the keys of a model that is not a\n"
      "language model.\n"
      "\n"
      "| family | keys of `model` |\n"
      "| --- | --- |\n";
  for (const ModelFamily& family : model_families()) {
    std::vector<std::string> keys;
    for (const FieldNode& field : tree.fields)
      if (!field.is_constant && std::ranges::count(family.keys, field.name) > 0)
        keys.push_back(concat("`", field.name, field.is_group() ? ".*`" : "`"));
    text += concat("| ", family.title, ", `", family.name, "` | ", join(keys), " |\n");
  }
  return text;
}

std::string presets_text() {
  std::size_t longest = 0;
  for (const std::string& name : preset_names()) longest = std::max(longest, name.size());
  std::string text;
  for (const ModelFamily& family : model_families()) {
    if (family.presets.empty()) continue;
    text += concat(text.empty() ? "" : "\n", family.title, "\n");
    for (const ModelPreset& preset : family.presets)
      text += concat(
          "  ", preset.name, std::string(longest + 2 - preset.name.size(), ' '),
          preset.model.layers, preset.model.layers == 1 ? " layer of width " : " layers of width ",
          preset.model.width,
          family.is_language_model ? concat(", context ", preset.model.context) : "", "\n");
  }
  return text + "\nTrain one with --preset NAME; `hybrid config --preset NAME` prints its keys.\n";
}

}  // namespace

int config_command(const std::vector<std::string>& arguments) {
  ConfigArguments source;
  bool schema = false, markdown = false, essential = false, presets = false;
  CommandSyntax syntax{.name = "config",
                       .usage =
                           "[--preset NAME | --config FILE] [--set KEY=VALUE]... "
                           "[--essential | --schema | --markdown]\n"
                           "       hybrid config --presets",
                       .description = "Prints the full configuration as JSON, including defaults."};
  add_config_options(syntax.options, source);
  syntax.options.add_options()("essential", po::bool_switch(&essential),
                               "Print the essential keys instead, grouped by question.");
  syntax.options.add_options()("schema", po::bool_switch(&schema),
                               "Print the configuration's JSON schema instead.");
  syntax.options.add_options()("markdown", po::bool_switch(&markdown),
                               "Print docs/CONFIG.md instead: tables of all keys.");
  syntax.options.add_options()("presets", po::bool_switch(&presets),
                               "List all built-in configurations instead, grouped by family.");
  if (!parse_command_line(syntax, arguments)) return 0;
  if (presets && arguments.size() > 1)
    throw UsageError("--presets lists all presets; leave out the other options");
  if (schema + markdown + essential > 1)
    throw UsageError("give one of --essential, --schema and --markdown");

  if (presets) {
    std::cout << presets_text();
    return 0;
  }
  const HybridTrainerConfig config = build_config(source);
  if (essential) {
    std::cout << essential_text(config);
  } else if (schema) {
    std::cout << json_schema(config);
  } else if (markdown) {
    std::cout << "# Configuration\n"
                 "\n"
                 "The keys of a configuration file and of `--set`. This page is the output of\n"
                 "`hybrid config --markdown`; a test compares the two.\n"
                 "\n"
              << essential_markdown(config)
              << "\n"
                 "## Location and precision of a run's data\n"
                 "\n"
              << "The location of data while it is not in use. `hybrid plan` prints this table\n"
                 "for a run, with bytes.\n"
                 "\n"
              << placement_markdown() << "\n## All keys\n\n"
              << config_markdown(config) << "\n"
              << families_markdown();
  } else {
    std::cout << config_json(config);
  }
  return 0;
}

}  // namespace hybrid_trainer
