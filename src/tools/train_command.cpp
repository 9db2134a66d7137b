#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/run_files.h"
#include "hybrid_trainer/trainer/training_run.h"
#include "src/tools/commands.h"
#include "src/tools/config_arguments.h"
#include "src/tools/device_option.h"

namespace hybrid_trainer {
namespace {

std::string as_typed(const std::vector<std::string>& arguments) {
  std::string text = "hybrid train";
  for (const std::string& argument : arguments) text += " " + argument;
  return text;
}

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
  if (data.empty()) throw UsageError("train: --data is missing: the folder of `hybrid prepare`");
}

/// The folder's model is taken whole; a key of it that was set would change nothing.
void check_model_is_not_set(const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    if (!setting.starts_with("model.") || setting.starts_with("model.dropout=")) continue;
    throw UsageError(concat("train: --set ", setting,
                            " beside --init-from, which takes the model from its folder; of "
                            "model.* only model.dropout can be set"));
  }
}

void print_end(const RunSummary& summary, const std::string& run) {
  const PredictionCounts& predictions = summary.predictions;
  std::cerr << "validation loss " << brief(summary.final_validation_loss.value_or(0)) << " after "
            << summary.steps << " steps, " << static_cast<long>(summary.seconds) << " s\n  steps:";
  for (Phase phase : kAllPhases)
    std::cerr << ' ' << name_of(phase) << ' ' << summary.phase(phase).steps;
  if (summary.learning_rate_finder) {
    const RunSummary::RateFinder& finder = *summary.learning_rate_finder;
    std::cerr << "\n  learning rate found: " << brief(finder.learning_rate) << ", "
              << brief(finder.factor) << " times the one given, by " << finder.probes
              << " probes that cost " << brief(finder.cost) << " Full steps";
  }
  if (summary.speculation) {
    const RunSummary::Speculation& late = *summary.speculation;
    std::cerr << "\n  late updates: " << late.steps << " steps, their predictions off by "
              << brief(late.mean_error().value_or(0)) << " of their size; the worker took "
              << brief(late.worker_seconds) << " s, steps waited " << brief(late.wait_seconds)
              << " s for it\n  report: " << run << "/report.html\n";
    return;
  }
  std::cerr << "\n  predictions: " << predictions.made << " made, " << predictions.accepted
            << " accepted, " << predictions.shrunk << " shrunk, " << predictions.reverted
            << " reverted\n  report: " << run << "/report.html\n";
}

}  // namespace

int train_command(const std::vector<std::string>& arguments) {
  ConfigArguments source;
  std::string data, run, init_from, device;
  bool resume = false, json = false;
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
      "Folder that `hybrid prepare` wrote; with --resume the run's own where left out.");
  add("run", po::value(&run)->required()->value_name("RUN"), "Folder for what the run leaves.");
  add("resume", po::bool_switch(&resume),
      "Go on from the run's newest checkpoint, or start where there is none. Without --preset and\n"
      "--config the run's own configuration holds.");
  add("init-from", po::value(&init_from)->value_name("HF_DIR"),
      "Take model and first weights from a Hugging Face folder.");
  add_device_option(syntax.options, device);
  add("json", po::bool_switch(&json), "Print the summary as one JSON object.");
  if (!parse_command_line(syntax, arguments)) return 0;
  take_from_run(source, data, {run, resume, !init_from.empty()});

  TrainingRunSettings settings{.config = build_config(source),
                               .data = data,
                               .run = run,
                               .resume = resume,
                               .init_from = {},
                               .command = as_typed(arguments)};
  if (!init_from.empty()) {
    check_model_is_not_set(source.settings);
    settings.init_from = init_from;
  }
  if (!device.empty()) settings.config.device = checked_device_name(device);
  const TrainingRunResult result = run_training(settings, std::cerr);
  if (json) {
    std::cout << result.summary_json;
  } else if (result.end == RunEnd::kFinished) {
    print_end(result.summary, run);
  }
  return static_cast<int>(result.end == RunEnd::kInterrupted ? ExitCode::kInterrupted
                                                             : ExitCode::kSuccess);
}

}  // namespace hybrid_trainer
