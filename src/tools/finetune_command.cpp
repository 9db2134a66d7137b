#include <cmath>
#include <ctime>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "hybrid_trainer/io/checkpoint.h"
#include "hybrid_trainer/trainer/example_data.h"
#include "hybrid_trainer/trainer/rank_checks.h"
#include "hybrid_trainer/trainer/run_files.h"
#include "hybrid_trainer/trainer/training_run.h"
#include "src/tools/commands.h"
#include "src/tools/config_arguments.h"
#include "src/tools/device_option.h"
#include "src/tools/fine_tuning_method.h"
#include "src/tools/train_output.h"
#include "src/tools/training_ranks.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

struct FineTuning {
  ConfigArguments source;
  std::string model, data, validation, run, device, method = "full";
  std::optional<double> epochs;
  std::optional<int> ranks;
  bool resume = false, json = false;
};

bool is_set(const FineTuning& asked, const std::string& key) {
  return std::ranges::any_of(asked.source.settings, [&](const std::string& setting) {
    return setting.starts_with(key + "=");
  });
}

/// Steps of so many epochs of the rows.
std::int64_t steps_of_epochs(const ExampleFiles& files, const HybridTrainerConfig& config,
                             double epochs) {
  const auto tokenizer = load_tokenizer(files.tokenizer);
  const ExampleData data = read_example_data(files, *tokenizer, config.data);
  const std::int64_t batch = config.data.batch_size * config.gradient_accumulation.micro_batches;
  const PackedRows packed(data.train, packing_of(config.data, batch, 0, *tokenizer));
  return std::max<std::int64_t>(
      1, std::llround(std::ceil(epochs * static_cast<double>(packed.sequences()) /
                                static_cast<double>(batch))));
}

void check(const FineTuning& asked) {
  if (!asked.epochs) return;
  if (!(*asked.epochs > 0 && *asked.epochs <= 1e6))
    throw UsageError(concat("hybrid finetune: --epochs: got ", *asked.epochs,
                            ", want more than 0, at most 1000000"));
  if (is_set(asked, "training.steps"))
    throw UsageError("hybrid finetune: --epochs and --set training.steps are both given; give one");
}

/// A run that goes on: its own configuration, data and model stand in for what the command line
/// leaves out.
HybridTrainerConfig config_of_resumed(FineTuning& asked, const RunPaths& paths) {
  const RunData data = data_of_run(paths);
  asked.source.file = paths.config();
  HybridTrainerConfig config = build_config(asked.source);
  const bool is_another =
      !asked.model.empty() && fs::weakly_canonical(asked.model) != fs::weakly_canonical(data.base);
  if (is_another && !config.lora.is_on())
    throw UsageError(concat("hybrid finetune: --model: got ", asked.model, ", but the run began ",
                            "with ", data.base.string()));
  if (!is_another) {  // else where the base of adapters has moved to
    asked.model = data.base.string();
    if (find_newest_checkpoint(paths.checkpoints()).checkpoint) asked.model.clear();
  }
  if (asked.data.empty()) asked.data = data.folder.string();
  return config;
}

bool goes_on_with_a_run(const FineTuning& asked) {
  return asked.resume && RunPaths{asked.run}.hold_a_run();
}

/// All but its number of steps.
HybridTrainerConfig config_of(FineTuning& asked) {
  if (goes_on_with_a_run(asked)) return config_of_resumed(asked, RunPaths{asked.run});
  if (asked.resume && asked.model.empty() && asked.data.empty()) existing_run(asked.run);
  if (asked.model.empty() || asked.data.empty())
    throw UsageError(concat("hybrid finetune: --", asked.model.empty() ? "model" : "data",
                            " is missing; want --model HF_DIR --data FILE --run RUN"));
  if (!fs::is_regular_file(asked.data))
    throw MissingInput(concat(asked.data, ": want a file of examples, one JSON object a line"));
  HybridTrainerConfig config =
      build_config(asked.source, fine_tuning_config(asked.model, asked.method));
  check_method(asked.method, config);
  return config;
}

/// Of a run that begins, 3 % of its steps warm up, where nothing else is set.
void set_steps(const FineTuning& asked, std::time_t now, HybridTrainerConfig& config) {
  ExampleFiles files{.examples = asked.data,
                     .validation = asked.validation,
                     .tokenizer = asked.model,
                     .now = now,
                     .vocabulary = config.model.vocabulary};
  if (goes_on_with_a_run(asked)) {
    if (!asked.epochs) return;
    const RunPaths paths{asked.run};
    const RunData data = data_of_run(paths);
    if (files.validation.empty()) files.validation = data.validation.string();
    files.tokenizer = paths.root + "/tokenizer";
    files.now = data.now;
    config.training.steps = steps_of_epochs(files, config, *asked.epochs);
    return;
  }
  if (!is_set(asked, "training.steps"))
    config.training.steps = steps_of_epochs(files, config, asked.epochs.value_or(1));
  if (!is_set(asked, "schedule.warmup_steps"))
    config.schedule.warmup_steps = std::llround(0.03 * static_cast<double>(config.training.steps));
}

CommandSyntax finetune_syntax(FineTuning& asked) {
  CommandSyntax syntax{
      .name = "finetune",
      .usage =
          "--model HF_DIR --data EXAMPLES --run RUN [options]\n"
          "       hybrid finetune --resume --run RUN [--set KEY=VALUE]",
      .description =
          "Trains a Hugging Face folder's model on JSON lines of text, prompt and completion, or\n"
          "messages. RUN gets what `hybrid train` leaves; `hybrid export` makes a folder of it.",
      .operands = {}};
  auto add = syntax.options.add_options();
  add("model", po::value(&asked.model)->value_name("HF_DIR"),
      "Model, tokenizer and chat template.");
  add("data", po::value(&asked.data)->value_name("EXAMPLES"), "File of examples.");
  add("validation", po::value(&asked.validation)->value_name("EXAMPLES"),
      "Examples to be measured on; else data.validation_fraction of the rows is held back.");
  add("run", po::value(&asked.run)->required()->value_name("RUN"),
      "Folder for what the run leaves.");
  add("method", po::value(&asked.method)->value_name("METHOD"),
      "full: all weights; lora: adapters of low rank beside them; qlora: beside them in 4 bits "
      "(full).");
  add("epochs",
      po::value<double>()->value_name("N")->notifier([&](double count) { asked.epochs = count; }),
      "How often each row is seen (1), unless training.steps is set.");
  add("resume", po::bool_switch(&asked.resume),
      "Go on from the run's newest checkpoint, or start where there is none.");
  add("ranks", po::value<int>()->value_name("N")->notifier([&](int count) { asked.ranks = count; }),
      "Train as N processes of this machine, as `hybrid train` does.");
  add_setting_options(syntax.options, asked.source);
  add_device_option(syntax.options, asked.device);
  add("json", po::bool_switch(&asked.json), "Print the summary as one JSON object.");
  return syntax;
}

}  // namespace

static int fine_tune(const std::vector<std::string>& arguments) {
  FineTuning asked;
  if (!parse_command_line(finetune_syntax(asked), arguments)) return 0;
  asked.resume = goes_on(asked.resume);
  check(asked);
  check_model_is_not_set("finetune", asked.source.settings);
  TrainingRunSettings settings{.config = config_of(asked),
                               .data = asked.data,
                               .validation = asked.validation,
                               .run = asked.run,
                               .resume = asked.resume,
                               .init_from = {},
                               .command = as_typed("finetune", arguments)};
  if (!asked.model.empty()) settings.init_from = asked.model;
  if (!asked.device.empty()) settings.config.device = checked_device_name(asked.device);
  const TrainingRanks ranks("finetune", arguments, asked.ranks, settings.config);
  const auto report = [&](const TrainingRunResult& result) {
    return report_training(result, asked.run, asked.json);
  };
  return ranks.run(settings, report, [&](TrainingRunSettings& of_run) {
    std::time_t now = std::time(nullptr);
    if (Communicator* const all = of_run.ranks) {
      check_ranks(of_run.config, all->size());
      now = std::stoll(all->host_gather(std::to_string(now)).front());
    }
    set_steps(asked, now, of_run.config);
  });
}

int finetune_command(const std::vector<std::string>& arguments) {
  return told_once([&] { return fine_tune(arguments); });
}

}  // namespace hybrid_trainer
