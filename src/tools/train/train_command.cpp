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

void take_from_run(TrainingOptions& requested) {
  const bool begins = !requested.model.empty() && !RunPaths{requested.run}.contains_run();
  if (requested.resume && !requested.source.names_a_source() && !begins)
    requested.source.file = existing_run(requested.run).config();
  if (!requested.source.names_a_source() && requested.model.empty())
    throw UsageError("train: give --preset NAME, --config FILE or --init-from HF_DIR");
  if (requested.data.empty() && requested.resume)
    requested.data = data_of_run(existing_run(requested.run)).folder.string();
}

}  // namespace

static int train(const std::vector<std::string>& arguments) {
  TrainingOptions requested{.command = "train", .model_option = "--init-from"};
  CommandSyntax syntax{
      .name = "train",
      .usage =
          "(--preset NAME | --config FILE) --data DATA --run RUN [options]\n"
          "       hybrid train --resume --run RUN [--set KEY=VALUE]",
      .description =
          "Trains a model in phases. Writes config.json, metrics.jsonl, summary.json,\n"
          "report.html and checkpoints/ to RUN. Ctrl-C finishes the current step, saves a\n"
          "checkpoint and exits."};
  add_config_options(syntax.options, requested.source);
  auto add = syntax.options.add_options();
  add("data", po::value(&requested.data)->value_name("DATA"),
      "Data folder written by `hybrid prepare`. Default with --resume: the run's data. Not used by "
      "model families that generate their own examples.");
  add("columns", po::value(&requested.columns)->value_name("COLUMN,..."),
      "For a table of series: measurements and target, such as speed,height,target=fuel. "
      "series=COLUMN and time=COLUMN mark separate series and gaps (data.columns).");
  add("init-from", model_value(requested.model),
      "Use the model and initial weights of a Hugging Face folder.");
  add("adapter", po::value(&requested.adapter)->value_name("PEFT_DIR"),
      "Use lora.rank, alpha, targets and variant, and the initial values of the adapters, from a "
      "PEFT folder.");
  add("method", po::value(&requested.method)->value_name("full|lora|dora|qlora"),
      "full (default): train all weights. lora, qlora: adapters of rank 16 and alpha 32 on frozen "
      "weights in bf16 or nf4; for a network of parts, on the parts that its family names (see "
      "--set parts).");
  add_training_options(syntax.options, requested);
  if (!parse_command_line(syntax, arguments)) return 0;
  requested.resume = resumes(requested.resume);
  if (!requested.columns.empty())
    requested.source.settings.push_back("data.columns=" + requested.columns);
  const std::vector<std::string> set_keys = explicit_keys(requested.source);
  const bool sets_base = requested.source.sets("lora.base");
  take_from_run(requested);

  if (!requested.model.empty()) check_model_is_not_set("train", requested.source.settings);
  const auto read = std::make_shared<ReadInputs>();
  read->model = ModelFolder(requested.model);
  HybridTrainerConfig of_folder;
  if (!requested.model.empty() && !requested.source.names_a_source())
    of_folder.model = read_hugging_face_model_config(read->model, 0);
  const bool is_present = requested.resume && RunPaths{requested.run}.contains_run();
  HybridTrainerConfig config =
      build_config(requested.source, of_folder, [&](HybridTrainerConfig& built) {
        if (!is_present) set_method(built, requested.method);
      });
  const auto begun = is_present ? std::optional(config_of_run({requested.run})) : std::nullopt;
  if (begun) check_method_of_run(requested.method, *begun, sets_base);
  if (begun) check_resumed_options(requested, *begun);
  scale_phases(config, requested.source, begun ? &*begun : nullptr);
  const TrainingRunSettings settings = settings_of(requested, arguments, config, set_keys, read);
  const TrainingRanks ranks("train", arguments, requested.ranks, settings.config);
  return ranks.run(settings, [&](const TrainingRunResult& result) {
    return report_training(result, requested.run, requested.json);
  });
}

int train_command(const std::vector<std::string>& arguments) {
  return report_errors_once([&] { return train(arguments); });
}

}  // namespace hybrid_trainer
