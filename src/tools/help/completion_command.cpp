#include <algorithm>
#include <iostream>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "src/files/config_fields.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"

namespace hybrid_trainer {

namespace {

struct ConfigKey {
  std::string path;                  // "phases.method"
  std::vector<std::string> choices;  // values to complete; empty: any value
};

void add_keys(const FieldNode& group, const std::string& before, std::vector<ConfigKey>& keys) {
  for (const FieldNode& field : group.fields) {
    if (field.is_group()) {
      add_keys(field, before + field.name + ".", keys);
    } else if (!field.is_list) {
      const bool is_flag = std::holds_alternative<bool>(field.value);
      keys.push_back({before + field.name,
                      is_flag ? std::vector<std::string>{"true", "false"} : field.choices});
    }
  }
}

/// Returns all keys in order, except lists of groups.
std::vector<ConfigKey> config_keys() {
  const HybridTrainerConfig config;
  std::vector<ConfigKey> keys;
  add_keys(field_tree(config), "", keys);
  return keys;
}

using Option = CommandDescription::Option;

std::string first_sentence(const std::string& help) {
  const std::size_t end = std::min(help.find(". "), help.find('\n'));
  std::string text = help.substr(0, end);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

/// Puts a backslash before each of `characters` in `text`.
std::string escaped(const std::string& text, std::string_view characters) {
  std::string safe;
  for (const char one : text) {
    if (characters.find(one) != std::string_view::npos) safe += '\\';
    safe += one;
  }
  return safe;
}

/// Returns the text in single quotes, valid in all three shells.
std::string single_quoted(const std::string& text) {
  std::string safe = "'";
  for (const char one : text) safe += one == '\'' ? std::string("'\\''") : std::string(1, one);
  return safe + "'";
}

std::string words(const std::vector<std::string>& all) { return join(all, " "); }

std::string options_of(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const Option& option : command.options) names.push_back("--" + option.name);
  return words(names);
}

std::string bash_script() {
  std::string names, options, values, keys, of_keys;
  for (const Command& one : command_table()) {
    const CommandDescription command = describe(one);
    names += concat(names.empty() ? "" : " ", command.name);
    options +=
        concat("      ", command.name, ") words=", single_quoted(options_of(command)), " ;;\n");
    for (const Option& option : command.options)
      if (!option.choices.empty())
        values += concat("    '", command.name, " --", option.name,
                         "') words=", single_quoted(words(option.choices)), " ;;\n");
  }
  for (const ConfigKey& key : config_keys()) {
    keys += concat(keys.empty() ? "" : " ", key.path, "=");
    if (!key.choices.empty())
      of_keys += concat("      ", key.path, ") words=", single_quoted(words(key.choices)), " ;;\n");
  }
  return concat(R"(# Completes `hybrid` in bash. Use: source <(hybrid completion bash)
_hybrid() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words= key=
  local command=${COMP_WORDS[1]}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W ')",
                names, R"( --help --version' -- "$current"))
    return
  fi
  # Bash takes "key=value" for three words.
  [ "$current" != = ] || { key=$previous current=; }
  [ "$previous" != = ] || key=${COMP_WORDS[COMP_CWORD - 2]}
  if [ -n "$key" ] && [ "${key#--}" = "$key" ]; then
    case $key in
)",
                of_keys, R"(    esac
    [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$current"))
    return
  fi
  [ -z "$key" ] || previous=$key
  if [ "$previous" = --set ]; then
    compopt -o nospace 2>/dev/null
    COMPREPLY=($(compgen -W ')",
                keys, R"(' -- "$current"))
    return
  fi
  case "$command $previous" in
)",
                values, R"(  esac
  if [ -z "$words" ] && [ "${current#-}" != "$current" ]; then
    case $command in
)",
                options, R"(    esac
  fi
  [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _hybrid hybrid
)");
}

std::string zsh_option(const Option& option) {
  const std::string text = escaped(first_sentence(option.help), "[]:\\");
  if (option.value.empty()) return single_quoted(concat("--", option.name, "[", text, "]"));
  const std::string value = escaped(option.value, ":\\");
  const std::string action = option.name == "set"     ? "_hybrid_keys"
                             : option.choices.empty() ? "_files"
                                                      : "(" + words(option.choices) + ")";
  return single_quoted(concat("*--", option.name, "=[", text, "]:", value, ":", action));
}

std::string zsh_script() {
  std::string commands, cases, keys;
  for (const Command& one : command_table()) {
    const CommandDescription command = describe(one);
    commands +=
        concat("    ", single_quoted(concat(command.name, ":", escaped(one.summary, ":\\"))), "\n");
    cases += concat("    ", command.name, ") _arguments");
    for (const Option& option : command.options) cases += " \\\n      " + zsh_option(option);
    cases += " \\\n      '*:file:_files' ;;\n";
  }
  for (const ConfigKey& key : config_keys()) keys += concat("    ", key.path, "=\n");
  return concat(R"(#compdef hybrid
# Completes `hybrid` in zsh. Use: hybrid completion zsh > FOLDER/_hybrid, with FOLDER in $fpath.
_hybrid_keys() {
  local -a keys=(
)",
                keys, R"(  )
  compadd -S '' -a keys
}
_hybrid() {
  local -a commands=(
)",
                commands, R"(  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=${words[2]}
  shift words
  (( CURRENT-- ))
  case $command in
)",
                cases, R"(  esac
}
if [ "$funcstack[1]" = _hybrid ]; then _hybrid "$@"; else compdef _hybrid hybrid; fi
)");
}

std::string fish_script() {
  std::string text =
      "# Completes `hybrid` in fish. Use: hybrid completion fish > "
      "~/.config/fish/completions/hybrid.fish\n";
  std::string keys;
  for (const ConfigKey& key : config_keys()) {
    keys += concat(keys.empty() ? "" : " ", key.path, "=");
    for (const std::string& choice : key.choices) keys += concat(" ", key.path, "=", choice);
  }
  for (const Command& one : command_table()) {
    const CommandDescription command = describe(one);
    text += concat("complete -c hybrid -n __fish_use_subcommand -f -a ", command.name, " -d ",
                   single_quoted(one.summary), "\n");
    for (const Option& option : command.options) {
      text += concat("complete -c hybrid -n '__fish_seen_subcommand_from ", command.name, "' -l ",
                     option.name, " -d ", single_quoted(first_sentence(option.help)));
      if (!option.value.empty()) text += " -r";
      if (option.name == "set") text += " -f -a " + single_quoted(keys);
      if (!option.choices.empty())
        text += concat(option.allows_other_values ? "" : " -f", " -a ",
                       single_quoted(words(option.choices)));
      text += "\n";
    }
  }
  return text;
}

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  throw UsageError(
      concat("hybrid completion: SHELL: got \"", shell, "\", want one of bash, zsh, fish"));
}

}  // namespace

int completion_command(const std::vector<std::string>& arguments) {
  const CommandSyntax syntax{
      .name = "completion",
      .usage = "bash|zsh|fish",
      .description =
          "Prints a shell script that completes commands, options and configuration keys.\n"
          "In bash: source <(hybrid completion bash)",
      .operands = {"SHELL"}};
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;
  std::cout << completion_script(operands->front());
  return 0;
}

}  // namespace hybrid_trainer
