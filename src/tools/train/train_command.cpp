#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/fine_tuning_method.h"
#include "src/run/run_files.h"
#include "src/tools/commands.h"
#include "src/tools/options.h"
#include "src/tools/train/starting_options.h"
#include "src/tools/train/train_output.h"
#include "src/tools/train/training_ranks.h"

namespace hybrid_trainer {

namespace {

/// Fills missing options from the configuration and data of a resumed run.
void take_from_run(TrainingOptions& asked) {
  const bool begins = !asked.model.empty() && !RunPaths{asked.run}.hold_a_run();
  if (asked.resume && !asked.source.names_a_source() && !begins)
    asked.source.file = existing_run(asked.run).config();
  if (!asked.source.names_a_source() && asked.model.empty())
    throw UsageError("train: give --preset NAME, --config FILE or --init-from HF_DIR");
  if (asked.data.empty() && asked.resume)
    asked.data = data_of_run(existing_run(asked.run)).folder.string();
}

}  // namespace

static int train(const std::vector<std::string>& arguments) {
  TrainingOptions asked{.command = "train", .model_option = "--init-from"};
  CommandSyntax syntax{
      .name = "train",
      .usage =
          "(--preset NAME | --config FILE) --data DATA --run RUN [options]\n"
          "       hybrid train --resume --run RUN [--set KEY=VALUE]",
      .description =
          "Trains a model in phases. Writes config.json, metrics.jsonl, summary.json,\n"
          "report.html and checkpoints/ to RUN. Ctrl-C finishes the current step, saves a\n"
          "checkpoint and exits.",
      .operands = {}};
  add_config_options(syntax.options, asked.source);
  auto add = syntax.options.add_options();
  add("data", po::value(&asked.data)->value_name("DATA"),
      "Data folder written by `hybrid prepare`. Default with --resume: the run's data. Not used by "
      "model families that generate their own examples.");
  add("columns", po::value(&asked.columns)->value_name("COLUMN,..."),
      "For a table of series: measurements and target, such as speed,height,target=fuel. "
      "series=COLUMN and time=COLUMN mark separate series and gaps (data.columns).");
  add("init-from", model_value(asked.model),
      "Use the model and initial weights of a Hugging Face folder.");
  add("adapter", po::value(&asked.adapter)->value_name("PEFT_DIR"),
      "Use lora.rank, alpha, targets and variant, and the initial values of the adapters, from a "
      "PEFT folder.");
  add("method", po::value(&asked.method)->value_name("full|lora|dora|qlora"),
      "full (default): train all weights. lora, qlora: adapters of rank 16 and alpha 32 on frozen "
      "weights in bf16 or nf4; for a network of parts, on the parts that its family names (see "
      "--set parts).");
  add_training_options(syntax.options, asked);
  if (!parse_command_line(syntax, arguments)) return 0;
  asked.resume = resumes(asked.resume);
  if (!asked.columns.empty()) asked.source.settings.push_back("data.columns=" + asked.columns);
  const std::vector<std::string> set_keys = explicit_keys(asked.source);
  const bool sets_base = asked.source.sets("lora.base");
  take_from_run(asked);

  if (!asked.model.empty()) check_model_is_not_set("train", asked.source.settings);
  const auto read = std::make_shared<ReadInputs>();
  read->model = ModelFolder(asked.model);
  HybridTrainerConfig of_folder;
  if (!asked.model.empty() && !asked.source.names_a_source())
    of_folder.model = read_hugging_face_model_config(read->model, 0);
  const bool is_there = asked.resume && RunPaths{asked.run}.hold_a_run();
  HybridTrainerConfig config =
      build_config(asked.source, of_folder, [&](HybridTrainerConfig& built) {
        if (!is_there) set_method(built, asked.method);
      });
  const auto begun = is_there ? std::optional(config_of_run({asked.run})) : std::nullopt;
  if (begun) check_method_of_run(asked.method, *begun, sets_base);
  if (begun) check_resumed_options(asked, *begun);
  scale_phases(config, asked.source, begun ? &*begun : nullptr);
  const TrainingRunSettings settings = settings_of(asked, arguments, config, set_keys, read);
  const TrainingRanks ranks("train", arguments, asked.ranks, settings.config);
  return ranks.run(settings, [&](const TrainingRunResult& result) {
    return report_training(result, asked.run, asked.json);
  });
}

int train_command(const std::vector<std::string>& arguments) {
  return report_errors_once([&] { return train(arguments); });
}

}  // namespace hybrid_trainer
