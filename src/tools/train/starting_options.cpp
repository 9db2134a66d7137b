#include "src/tools/train/starting_options.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/run_directory.h"
#include "src/core/messages.h"
#include "src/files/config_fields.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/run_files.h"
#include "src/tasks/task_kind.h"
#include "src/tools/options.h"
#include "src/tools/train/train_output.h"
#include "src/tools/train/typed_command.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;

/// Returns whether both folders describe the same model shape, as far as they can be read.
bool may_be_one_model(const ModelFolder& a, const ModelFolder& b) {
  try {
    return config_json(read_hugging_face_model_config(a, 0)) ==
           config_json(read_hugging_face_model_config(b, 0));
  } catch (const Error&) {
    return true;
  }
}

/// Throws UsageError if `source` sets a key of lora.* to another value than the adapter's folder,
/// except for the keys that the run may choose.
void check_same_adapters(const LoraConfig& requested, const LoraConfig& in_folder,
                         const std::string& folder, const std::string& command,
                         const ConfigArguments& source) {
  const FieldNode here = field_tree(requested), there = field_tree(in_folder);
  for (std::size_t i = 0; i < here.fields.size(); ++i) {
    const FieldNode &ours = here.fields[i], &theirs = there.fields[i];
    const bool is_free = ours.name == "base" || ours.name == "dropout";
    if (is_free || field_text(ours) == field_text(theirs) || !source.sets("lora." + ours.name))
      continue;
    throw UsageError(concat(command, ": lora.", ours.name, ": got ", field_text(ours),
                            ", but the adapter ", folder, " has ", field_text(theirs),
                            "; leave it out: with --adapter, only the keys lora.base and "
                            "lora.dropout of lora.* can be set"));
  }
}

void check_same_input(const TrainingOptions& given, const std::string& option,
                      const std::string& folder, const fs::path& before) {
  if (folder.empty() || fs::weakly_canonical(folder) == fs::weakly_canonical(before)) return;
  throw UsageError(concat("hybrid ", given.command, ": ", option, ": got ", folder,
                          ", but the run started ",
                          before.empty() ? "without one" : "with " + before.string(), "; leave ",
                          option, " out to continue the run, or start a new run"));
}

void check_exists(const TrainingOptions& given, const char* option, const std::string& requested,
                  const fs::path& before) {
  if ((!requested.empty() && requested != before) || before.empty() || fs::exists(before)) return;
  throw MissingInput(concat(before.string(),
                            ": does not exist, but the run needs it to continue; restore it, or "
                            "give its new location: hybrid ",
                            given.command, " --resume --run ", shell_path(given.run), " ", option,
                            " NEW_PATH"));
}

/// Loads the adapters of `model` from a PEFT folder. The configuration selects their training.
void take_adapter(const TrainingOptions& requested, const ModelFolder& model,
                  TrainingRunSettings& settings) {
  const std::string &folder = requested.adapter, command = "hybrid " + requested.command;
  if (RunPaths{folder}.contains_run())
    throw UsageError(concat(command, ": --adapter ", folder,
                            " is a run; export its adapter first: hybrid export ",
                            shell_path(folder), " --adapter --output ADAPTER"));
  const AdapterFolder adapter = read_adapter_config(folder);
  if (!adapter.extra_weights.empty())
    throw DataError(
        concat(folder, ": the adapter also changes ", adapter.extra_weights.front(),
               ", a weight trained without an adapter, which --adapter does not support; merge the "
               "adapter into its base and train the result: hybrid export ",
               shell_path(folder), " --merge --output MERGED"));
  if (settings.init_from && !may_be_one_model(adapter.base, model))
    throw DataError(concat(folder, ": the adapter belongs to ", adapter.base, ", not to ",
                           settings.init_from->string()));
  LoraConfig lora = adapter.config;
  check_same_adapters(settings.config.lora, lora, folder, command, requested.source);
  lora.base = settings.config.lora.base;
  if (requested.source.sets("lora.dropout")) lora.dropout = settings.config.lora.dropout;
  settings.config.lora = lora;
  settings.adapter = folder;
}

}  // namespace

void add_training_options(po::options_description& options, TrainingOptions& requested) {
  const auto enable_tensorboard = [&requested](bool on) {
    if (on) requested.source.settings.emplace_back("observability.tensorboard=true");
  };
  const auto take_export = [&requested](const std::string& given) {
    if (fs::path(given).extension() == ".gguf")
      throw UsageError(concat("--export: got ", given,
                              ", but --export writes a folder; export a GGUF file after the run: "
                              "hybrid export RUN --output ",
                              shell_path(given)));
    requested.export_to = given;
  };
  auto add = options.add_options();
  add("run", po::value(&requested.run)->required()->value_name("RUN"), "Run folder.");
  add("resume", po::bool_switch(&requested.resume),
      "Resume from the run's newest checkpoint, or start from the beginning if there is none. The "
      "run's configuration applies unless an option overrides it.");
  add("ranks", optional_value(requested.ranks, "N"),
      "Train with N processes on this machine, with one CUDA device each or on CPUs, unless a "
      "launcher started them.");
  add("tensorboard", po::bool_switch()->notifier(enable_tensorboard),
      "Also write RUN/tensorboard/; same as observability.tensorboard=true.");
  add_device_option(options, requested.device);
  add("export", po::value<std::string>()->notifier(take_export)->value_name("HF_DIR"),
      "Export the finished run's model as `hybrid export` does, or its adapters as with --adapter. "
      "Must be repeated with --resume.");
  add("json", po::bool_switch(&requested.json), "Print the summary of the run as one JSON object.");
}

TrainingRunSettings settings_of(const TrainingOptions& requested,
                                const std::vector<std::string>& arguments,
                                const HybridTrainerConfig& config,
                                const std::vector<std::string>& set_keys,
                                const std::shared_ptr<const ReadInputs>& read) {
  TrainingRunSettings settings{
      .config = config,
      .data = requested.data,
      .validation = requested.validation,
      .run = requested.run,
      .export_to = requested.export_to,
      .resume = requested.resume,
      .command = as_typed(requested.command, arguments),
      .resume_command =
          resume_command(requested.command, requested.run, requested.ranks, requested.export_to),
      .restart_command = restart_command(requested.command, arguments),
      .explicit_keys = set_keys,
      .quiet = is_quiet(requested.json),
      .task = [read](const TrainingRunSettings& all) {
        return task_kind(all.config.model).task(all, *read);
      }};
  if (!requested.model.empty()) settings.init_from = requested.model;
  if (!requested.adapter.empty()) take_adapter(requested, read->model, settings);
  if (!requested.device.empty()) settings.config.device = checked_device_name(requested.device);
  return settings;
}

void check_resumed_options(const TrainingOptions& given, const HybridTrainerConfig& config) {
  const RunData before = data_of_run({given.run});
  const bool may_move = config.freezes() && !before.base.empty();
  if (!may_move) check_same_input(given, given.model_option, given.model, before.base.path());
  check_same_input(given, "--adapter", given.adapter, before.adapter);
  check_exists(given, "--data", given.data, before.folder);
  check_exists(given, "--validation", given.validation, before.validation);
}

}  // namespace hybrid_trainer
