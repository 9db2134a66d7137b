#include <boost/json.hpp>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/text_data.h"
#include "src/tasks/task_kind.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/config_arguments.h"
#include "src/tools/options.h"
#include "src/tools/standard_input.h"

namespace hybrid_trainer {

namespace {

/// Reads the configuration of a run or of a folder with config.json. Otherwise returns the default.
HybridTrainerConfig config_of(const RowsRequest& requested, const ConfigArguments& source) {
  HybridTrainerConfig config;
  if (requested.is_of_run()) {
    config = config_of_run(RunPaths{requested.model.string()});
  } else if (requested.model.files().contains("config.json")) {
    config.model = read_hugging_face_model_config(requested.model, 0);
    config.objective = objective_of_folder(requested.model, config.model);
  }
  if (requested.is_configured) config = build_config(source, config);
  if (!requested.columns.empty()) config.data.columns = requested.columns;
  return config;
}

}  // namespace

int rows_command(const std::vector<std::string>& arguments) {
  RowsRequest requested{.report = [](const std::string& line) { std::cerr << line << "\n"; }};
  ConfigArguments source;
  std::string model, task, objective;
  bool json = false;
  CommandSyntax syntax{
      .name = "rows",
      .usage = "EXAMPLES (--model FOLDER | --preset NAME) [--length N] [--show LINE] [--json]",
      .description =
          "Previews training on a file of examples (JSON, CSV, parquet, a folder of such files,\n"
          "or - for standard input): rows that are used and refused, tokens, and packed\n"
          "sequences. With --task, also classes. For images, arrays and tables of series, shows\n"
          "the classes, tensors or columns and how they are interpreted.",
      .operands = {"EXAMPLES"}};
  auto add = syntax.options.add_options();
  add("model", model_value(model, "FOLDER"),
      "Hugging Face folder, GGUF file or ollama:NAME with the tokenizer and chat template; for "
      "models that do not read text, also a run.");
  add_source_options(syntax.options, source);
  add("length", po::value(&requested.longest)->value_name("N"),
      "data.sequence_length of the planned run (default: 1024); a row has at most one more token.");
  add("show", optional_value(requested.shown, "LINE"),
      "Print the row at this line, with its target tokens between ⟦ and ⟧.");
  add_columns_option(syntax.options, requested.columns);
  add("objective", po::value(&objective)->value_name("OBJECTIVE"),
      "Objective of the planned run: next_token (default), or dpo or orpo, whose rows are pairs of "
      "answers.");
  add("task", po::value(&task)->value_name("TASK"),
      "Task of the planned run, if it is text-level: classify, embed, rank or reward. "
      "Default: the task of the model's folder.");
  add_control_tokens_option(syntax.options, requested.control_tokens);
  add("json", po::bool_switch(&json), "Print the result as one JSON object.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;
  if (requested.longest < 2 || requested.longest > 1 << 24)
    throw UsageError(
        concat("hybrid rows: --length: got ", requested.longest, ", want 2 … ", 1 << 24));

  const std::vector<std::string> objectives{"next_token", "dpo", "orpo"},
      tasks{"classify", "embed", "rank", "reward"};
  if (!task.empty() && std::ranges::count(tasks, task) == 0)
    throw UsageError(choice_problem("hybrid rows: --task", task, tasks));
  if (!objective.empty() && std::ranges::count(objectives, objective) == 0)
    throw UsageError(choice_problem("hybrid rows: --objective", objective, objectives));
  if (requested.shown && *requested.shown < 1)
    throw UsageError(
        concat("hybrid rows: --show: got ", *requested.shown, ", want a line, 1 or more"));

  if (model.empty() && !source.names_a_source())
    throw UsageError(
        "hybrid rows: give --model FOLDER, or --preset NAME for a model that does not read text");
  std::optional<StandardInput> input;
  requested.model = model;
  requested.data = operands->front();
  if (requested.data == StandardInput::kOption) {
    requested.data = input.emplace().path().string();
    requested.called = StandardInput::kCalled;
  }
  requested.is_configured = source.names_a_source() || !source.settings.empty();
  const HybridTrainerConfig config = config_of(requested, source);
  if (!task.empty() || !objective.empty())
    requested.objective = task.empty() ? objective : task;
  else if (task_kind(config.model).in_sequences)
    requested.objective = config.objective;
  const Findings found = task_kind(config.model).rows(requested, config);
  std::cout << (json ? json_line(found.json) : found.text) << "\n";
  return 0;
}

}  // namespace hybrid_trainer
