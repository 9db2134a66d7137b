#include "src/tools/command_description.h"

#include <algorithm>
#include <boost/json.hpp>
#include <sstream>

#include "hybrid_trainer/config/presets.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

/// A word as it is typed; words in capitals stand for something.
bool is_typed(const std::string& word) {
  return !word.empty() && std::ranges::none_of(word, [](char c) { return c >= 'A' && c <= 'Z'; });
}

void find_choices(CommandDescription::Option& option) {
  if (option.name == "preset") {
    option.choices = preset_names();
    option.takes_others = false;
    return;
  }
  if (option.value.find('|') == std::string::npos) return;
  std::istringstream words(option.value);
  std::size_t all = 0;
  for (std::string word; std::getline(words, word, '|'); ++all)
    if (is_typed(word)) option.choices.push_back(word);
  option.takes_others = option.choices.size() < all;
}

json::array array_of(const std::vector<std::string>& texts) {
  return json::array(texts.begin(), texts.end());
}

}  // namespace

CommandDescription describe(const CommandSyntax& syntax) {
  CommandDescription command{.name = syntax.name,
                             .usage = syntax.usage,
                             .text = syntax.description,
                             .operands = syntax.operands,
                             .options = {}};
  for (const auto& given : syntax.options.options()) {
    CommandDescription::Option option{
        .name = given->long_name(), .value = {}, .help = given->description()};
    if (given->semantic()->max_tokens() > 0) option.value = given->semantic()->name();
    option.is_required = given->semantic()->is_required();
    find_choices(option);
    command.options.push_back(option);
  }
  command.options.push_back({.name = "help", .value = {}, .help = "Print this text."});
  return command;
}

json::object json_of(const CommandDescription& command) {
  json::array options;
  for (const CommandDescription::Option& option : command.options) {
    json::object one{{"name", option.name}};
    if (!option.value.empty()) one["value"] = option.value;
    if (!option.choices.empty()) one["choices"] = array_of(option.choices);
    one["required"] = option.is_required;
    one["help"] = option.help;
    options.push_back(std::move(one));
  }
  return {{"name", command.name},
          {"usage", command.usage},
          {"description", command.text},
          {"operands", array_of(command.operands)},
          {"options", std::move(options)}};
}

}  // namespace hybrid_trainer
