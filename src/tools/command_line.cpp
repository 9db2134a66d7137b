#include "src/tools/command_line.h"

#include <algorithm>
#include <boost/json.hpp>
#include <iostream>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/tools/options.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;

/// Returns whether a word is typed literally; words in capitals are placeholders.
bool is_literal_word(const std::string& word) {
  return !word.empty() && std::ranges::none_of(word, [](char c) { return c >= 'A' && c <= 'Z'; });
}

void find_choices(CommandDescription::Option& option) {
  if (option.name == "preset") {
    option.choices = preset_names();
    option.allows_other_values = false;
    return;
  }
  if (option.value.find('|') == std::string::npos) return;
  std::istringstream words(option.value);
  std::size_t all = 0;
  for (std::string word; std::getline(words, word, '|'); ++all)
    if (is_literal_word(word)) option.choices.push_back(word);
  option.allows_other_values = option.choices.size() < all;
}

json::array array_of(const std::vector<std::string>& texts) {
  return json::array(texts.begin(), texts.end());
}

constexpr const char *kOperands = "operands", *kRun = "run";

bool is_variadic(const std::string& operand) { return operand.ends_with("..."); }

std::string help_hint(const CommandSyntax& syntax) {
  return concat("\nusage: hybrid ", syntax.name, " ", syntax.usage);
}

/// Returns whether an operand may be a model: "RUN|HF_DIR", or "PATH" of `inspect`.
bool is_model(const std::string& operand) {
  return operand.find("HF_DIR") != operand.npos || operand == "PATH";
}

/// Returns whether --run RUN may stand for the first operand.
bool takes_run(const CommandSyntax& syntax) {
  if (syntax.operands.empty() || syntax.options.find_nothrow(kRun, false) != nullptr) return false;
  return syntax.operands.front().starts_with("RUN") || syntax.operands.front() == "PATH";
}

/// Splits "--name=" into "--name" and an empty value; Boost would reject it.
std::vector<std::string> split_empty_values(const std::vector<std::string>& arguments) {
  std::vector<std::string> split;
  for (const std::string& argument : arguments) {
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      split.push_back(argument.substr(0, argument.size() - 1));
      split.emplace_back();
    } else {
      split.push_back(argument);
    }
  }
  return split;
}

/// Options, and the names that other programs have for them. Of the options for a name, the first one
/// that the command has is suggested.
constexpr std::pair<std::string_view, std::string_view> kOptionsOfOthers[] = {
    {"--lr RATE", " learning-rate "},
    {"--set optimizer.learning_rate=RATE", " learning-rate lr "},
    {"--batch-size B", " per-device-train-batch-size micro-batch-size "},
    {"--set data.batch_size=B", " per-device-train-batch-size micro-batch-size batch-size "},
    {"--set gradient_accumulation.micro_batches=N", " gradient-accumulation-steps "},
    {"--epochs N", " num-epochs num-train-epochs "},
    {"--set training.steps=N", " num-epochs num-train-epochs epochs max-steps steps iters "},
    {"--set data.sequence_length=T", " max-length max-seq-length seq-length cutoff-len "},
    {"--method lora --set lora.rank=R", " lora-r lora-rank "},
    {"--method lora --set lora.alpha=A", " lora-alpha "},
    {"--method lora --set lora.dropout=P", " lora-dropout "},
    {"--method lora --set lora.targets=NAMES", " lora-target-modules "},
    {"--method qlora", " load-in-4bit "},
    {"--set optimizer.weight_decay=W", " weight-decay "},
    {"--set schedule.warmup_steps=N", " warmup-steps "},
    {"--set schedule.name=NAME", " lr-scheduler-type "},
    {"--set optimizer.clip_norm=NORM", " max-grad-norm "},
    {"--set optimizer.name=NAME", " optim "},
    {"--set training.seed=N", " seed "},
    {"--set training.threads=N", " threads "},
    {"--set mixed_precision.full=bf16", " bf16 "},
    {"--set checkpoint.every_steps=N", " save-steps "},
    {"--set training.evaluate_every_steps=N", " eval-steps "},
    {"--run RUN", " output-dir output "},
    {"--data EXAMPLES", " dataset train-file "},
    {"--model HF_DIR", " model-name-or-path base-model "},
    {"--init-from HF_DIR", " model-name-or-path base-model model "},
};

std::string option_hint(const CommandSyntax& syntax, const std::string& given) {
  std::string plain = given.substr(given.find_first_not_of('-'));
  std::ranges::replace(plain, '_', '-');
  for (const auto& [own, names] : kOptionsOfOthers) {
    const std::string option(own.substr(2, own.find(' ') - 2));
    if (names.find(" " + plain + " ") != names.npos &&
        syntax.options.find_nothrow(option, false) != nullptr)
      return concat("; want ", own);
  }
  std::vector<std::string> names{"--help"};
  for (const auto& option : syntax.options.options()) names.push_back("--" + option->long_name());
  return name_hint(given, names);
}

[[noreturn]] void throw_unknown_option(const CommandSyntax& syntax, const std::string& given) {
  throw UsageError(
      concat("hybrid ", syntax.name, ": there is no option ", given, option_hint(syntax, given)));
}

void check_operands(const CommandSyntax& syntax, const std::vector<std::string>& given) {
  const auto& wanted = syntax.operands;
  if (given.size() < wanted.size()) {
    throw UsageError(concat("hybrid ", syntax.name, ": ", wanted[given.size()], " is missing",
                            help_hint(syntax)));
  }
  const bool any_number = !wanted.empty() && is_variadic(wanted.back());
  if (given.size() > wanted.size() && !any_number) {
    throw UsageError(concat("hybrid ", syntax.name, ": unexpected argument \"",
                            given[wanted.size()], "\"", help_hint(syntax)));
  }
  for (const std::string& operand : given) {
    if (operand.empty())
      throw UsageError(concat("hybrid ", syntax.name, ": an empty path", help_hint(syntax)));
  }
}

/// Parses all arguments into `values`, replacing unhelpful messages of Boost.
void parse_into(po::variables_map& values, const CommandSyntax& syntax,
                const po::options_description& all, const std::vector<std::string>& arguments) {
  const std::string who = concat("hybrid ", syntax.name, ": ");
  try {
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::positional_options_description positions;
    positions.add(kOperands, -1);
    const auto parsed = po::command_line_parser(split_empty_values(arguments))
                            .options(all)
                            .positional(positions)
                            .style(style)
                            .run();
    for (const auto& option : parsed.options) {
      const bool is_empty = option.value.size() == 1 && option.value.front().empty();
      if (is_empty && option.position_key < 0 && option.string_key != syntax.may_be_empty)
        throw UsageError(concat(who, "--", option.string_key, ": got an empty value"));
    }
    po::store(parsed, values);
    if (!values.count("help")) po::notify(values);
  } catch (const po::unknown_option& error) {
    throw_unknown_option(syntax, error.get_option_name());
  } catch (const po::required_option& error) {
    throw UsageError(concat(who, error.get_option_name(), " is missing", help_hint(syntax)));
  } catch (const po::multiple_occurrences& error) {
    throw UsageError(concat(who, error.get_option_name(), " is given more than once"));
  } catch (const po::error& error) {
    throw UsageError(concat(who, error.what(), help_hint(syntax)));
  }
}

void print_help(const CommandSyntax& syntax, const po::options_description& visible) {
  std::cout << "usage: hybrid " << syntax.name << " " << syntax.usage << "\n\n"
            << syntax.description << "\n\n"
            << visible;
}

}  // namespace

CommandDescription describe(const CommandSyntax& syntax) {
  CommandDescription command{.name = syntax.name,
                             .usage = syntax.usage,
                             .text = syntax.description,
                             .operands = syntax.operands};
  for (const auto& given : syntax.options.options()) {
    const auto& value = *given->semantic();
    CommandDescription::Option option{.name = given->long_name(),
                                      .value = value.max_tokens() > 0 ? value.name() : "",
                                      .help = given->description(),
                                      .is_required = value.is_required()};
    find_choices(option);
    command.options.push_back(option);
  }
  command.options.push_back({.name = "help", .value = {}, .help = "Print this help."});
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

std::optional<std::vector<std::string>> parse_command_line(
    const CommandSyntax& syntax, const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{"--describe"})
    throw DescriptionRequested{describe(syntax)};
  po::options_description visible("Options", 100);
  for (const auto& option : syntax.options.options()) visible.add(option);
  visible.add_options()("help,h", "Print this help.");
  po::options_description all;
  all.add(visible).add_options()(kOperands, po::value<std::vector<std::string>>());
  if (takes_run(syntax)) all.add_options()(kRun, po::value<std::string>());

  po::variables_map values;
  parse_into(values, syntax, all, arguments);
  if (values.count("help")) {
    print_help(syntax, visible);
    return {};
  }
  const po::variable_value& given = values[kOperands];
  auto operands = given.empty() ? std::vector<std::string>{} : given.as<std::vector<std::string>>();
  if (takes_run(syntax) && values.count(kRun))
    operands.insert(operands.begin(), values[kRun].as<std::string>());
  check_operands(syntax, operands);
  for (std::size_t i = 0; i < syntax.operands.size(); ++i)
    if (is_model(syntax.operands[i])) operands[i] = model_path(operands[i]);
  return operands;
}

}  // namespace hybrid_trainer
