#pragma once

#include <iosfwd>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/interruption.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/run/task.h"

namespace hybrid_trainer {

class Communicator;
struct TrainingRunSettings;

/// Makes the task of `hybrid train` and `hybrid finetune`: pretraining or fine-tuning of a language
/// model. Throws MissingInput, DataError, ConfigError.
std::unique_ptr<Task> language_task(const TrainingRunSettings& settings);

/// Settings of one training run.
struct TrainingRunSettings {
  HybridTrainerConfig config;
  /// Data of a language model: a folder of `hybrid prepare`, llm.c shards, or a file of examples.
  std::filesystem::path data{};
  /// A separate file of validation examples, if `data` is a file of examples.
  std::filesystem::path validation{};
  /// Folder to write config.json, metrics.jsonl, summary.json, report.html and checkpoints/ to.
  std::filesystem::path run;
  /// Folder for the task's export once the run has finished; empty disables it.
  std::filesystem::path export_to{};
  bool resume = false;  // resume from the newest checkpoint of `run`, or start if there is none
  /// Hugging Face folder with the initial weights of a language model.
  std::optional<std::filesystem::path> init_from{};
  /// PEFT folder with the initial values of the adapters; config.lora must match it.
  std::optional<std::filesystem::path> adapter{};
  std::string command{};  // command line as typed, for the summary
  /// Commands that messages suggest: to resume the run, and to restart it if it may have left a
  /// folder but no checkpoint. "" if the run was not started by a command.
  std::string resume_command{}, restart_command{};
  std::vector<std::string> notes{};          // shown before the first step
  std::vector<std::string> explicit_keys{};  // keys that are reported if they have no effect
  bool quiet = false;  // print only warnings and notes to the console, no progress
  /// Registry that checks the group `model`; an empty one does not, for tasks with other models.
  const ModelRegistry* registry = &model_families();
  std::function<std::unique_ptr<Task>(const TrainingRunSettings&)> task = language_task;
  std::function<void(const StepRecord&)> on_step = {};  // called after each step
  /// Source of stop requests; null uses Ctrl-C and SIGTERM during the run.
  const Interruption* interruption = nullptr;
  /// Ranks of this run; null means a single process. Each rank runs with the same settings. Rank 0
  /// uses the run's folder and the console, rank N the folder ranks/N in it.
  Communicator* ranks = nullptr;
  int local_ranks = 1;  // ranks on this host, which share its cores if training.threads is 0
  int local_rank = 0;   // index on this host; the devices cuda and auto mean cuda:local_rank
};

enum class RunEnd { kFinished, kWasFinished, kInterrupted };

struct TrainingRunResult {
  RunEnd end = RunEnd::kFinished;
  RunSummary summary;        // empty if the run had already finished
  std::string summary_json;  // contents of summary.json
};

/// Trains to config.training.steps and prints progress to `console`. If Ctrl-C or SIGTERM is
/// received, finishes the step, saves and returns kInterrupted. Checks everything before it creates
/// the run's folder. A run that ends with an error still writes its summary and report; a run that
/// diverges also writes a checkpoint. Throws ConfigError, MissingInput, DataError, CannotCreate,
/// InUse, OutOfMemory, Diverged, and IoError; after an IoError, the last steps are not saved, and
/// the message names the newest checkpoint.
TrainingRunResult run_training(const TrainingRunSettings& settings, std::ostream& console);

}  // namespace hybrid_trainer
