#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/fine_tuning_method.h"
#include "src/run/run_files.h"
#include "src/tasks/task_kind.h"
#include "src/tools/commands.h"
#include "src/tools/config_arguments.h"
#include "src/tools/options.h"
#include "src/tools/train/starting_options.h"
#include "src/tools/train/train_output.h"
#include "src/tools/train/training_ranks.h"
#include "src/tools/train/typed_command.h"

namespace hybrid_trainer {

namespace {

struct Given {
  std::string run;
  bool resume = false, init_from = false;
};

/// A resumed run's own configuration and data stand in for what the command line leaves out.
void take_from_run(ConfigArguments& source, std::string& data, const Given& given) {
  const bool begins = given.init_from && !RunPaths{given.run}.hold_a_run();
  if (given.resume && !source.names_a_source() && !begins)
    source.file = existing_run(given.run).config();
  if (!source.names_a_source() && !given.init_from)
    throw UsageError("train: give --preset NAME, --config FILE or --init-from HF_DIR");
  if (data.empty() && given.resume) data = data_of_run(existing_run(given.run)).folder.string();
}

}  // namespace

static int train(const std::vector<std::string>& arguments) {
  ConfigArguments source;
  std::string data, run, init_from, adapter, device, export_to, method, columns;
  bool resume = false, json = false;
  std::optional<int> local_ranks;
  CommandSyntax syntax{
      .name = "train",
      .usage =
          "(--preset NAME | --config FILE) --data DATA --run RUN [options]\n"
          "       hybrid train --resume --run RUN [--set KEY=VALUE]",
      .description =
          "Trains a model in phases. RUN gets config.json, metrics.jsonl, summary.json,\n"
          "report.html and checkpoints/. Ctrl-C finishes the step, saves and exits.",
      .operands = {}};
  add_config_options(syntax.options, source);
  auto add = syntax.options.add_options();
  add("data", po::value(&data)->value_name("DATA"),
      "Folder that `hybrid prepare` wrote; with --resume the run's own where left out. Families "
      "that\n"
      "draw their own examples have none.");
  add("columns", po::value(&columns)->value_name("COLUMN,..."),
      "Of a table of series, the measurements and the target: speed,height,target=fuel, and with "
      "series=COLUMN and time=COLUMN where series and gaps are (data.columns).");
  add("run", po::value(&run)->required()->value_name("RUN"), "Folder of the run.");
  add("resume", po::bool_switch(&resume),
      "Go on from the run's newest checkpoint, or start where there is none. Without --preset and\n"
      "--config the run's own configuration holds.");
  add("init-from", model_value(init_from),
      "Take model and first weights from a Hugging Face folder.");
  add("adapter", po::value(&adapter)->value_name("PEFT_DIR"),
      "Take lora.rank, alpha, targets and variant, and the adapters' first values, from a folder "
      "of\n"
      "PEFT.");
  add("method", po::value(&method)->value_name("full|lora|dora|qlora"),
      "full (default): all weights. lora, qlora: adapters of rank 16, alpha 32 beside frozen "
      "weights\n"
      "in bf16 or nf4; of a network of parts on those that its family names (see --set parts).");
  add("ranks", po::value<int>()->value_name("N")->notifier([&](int count) { local_ranks = count; }),
      "Train as N processes of this machine, with a CUDA device each or on CPUs, unless a\n"
      "launcher started them.");
  add_tensorboard_option(syntax.options, source);
  add_device_option(syntax.options, device);
  add_export_option(syntax.options, export_to);
  add("json", po::bool_switch(&json), "Print the summary as one JSON object.");
  if (!parse_command_line(syntax, arguments)) return 0;
  resume = goes_on(resume);
  if (!columns.empty()) source.settings.push_back("data.columns=" + columns);
  const std::vector<std::string> set_keys = explicit_keys(source);
  const bool sets_base = source.sets("lora.base");
  take_from_run(source, data, {run, resume, !init_from.empty()});

  if (!init_from.empty()) check_model_is_not_set("train", source.settings);
  const ModelFolder model(init_from);
  HybridTrainerConfig of_folder;
  if (!init_from.empty() && !source.names_a_source())
    of_folder.model = read_hugging_face_model_config(model, 0);
  const bool is_there = resume && RunPaths{run}.hold_a_run();
  HybridTrainerConfig config = build_config(source, of_folder, [&](HybridTrainerConfig& built) {
    if (!is_there) set_method(built, method);
  });
  const auto begun = is_there ? std::optional(config_of_run({run})) : std::nullopt;
  if (begun) check_method_of_run(method, *begun, sets_base);
  if (begun)
    check_resumed_options({"hybrid train", run, "--init-from", init_from, adapter, data, {}},
                          *begun);
  scale_phases(config, source, begun ? &*begun : nullptr);
  TrainingRunSettings settings{
      .config = config,
      .data = data,
      .run = run,
      .export_to = export_to,
      .resume = resume,
      .init_from = {},
      .command = as_typed("train", arguments),
      .resume_command = resume_command("train", run, local_ranks, export_to),
      .restart_command = restart_command("train", arguments),
      .explicit_keys = set_keys,
      .quiet = keeps_quiet(json),
      .task = [model](const TrainingRunSettings& all) {
        return task_kind(all.config.model).task(all, {model});
      }};
  if (!init_from.empty()) settings.init_from = init_from;
  if (!adapter.empty()) take_adapter(settings, adapter, model, "train", source);
  if (!device.empty()) settings.config.device = checked_device_name(device);
  const TrainingRanks ranks("train", arguments, local_ranks, settings.config);
  return ranks.run(settings, [&](const TrainingRunResult& result) {
    return report_training(result, run, json);
  });
}

int train_command(const std::vector<std::string>& arguments) {
  return told_once([&] { return train(arguments); });
}

}  // namespace hybrid_trainer
