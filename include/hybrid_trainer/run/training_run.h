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

struct TrainingRunSettings {
  HybridTrainerConfig config;
  /// Data of a language model: a folder of `hybrid prepare`, llm.c shards, or a file of examples.
  std::filesystem::path data{};
  std::filesystem::path validation{};  // validation examples, if `data` is a file
  /// Folder to write config.json, metrics.jsonl, summary.json, report.html and checkpoints/ to.
  std::filesystem::path run;
  std::filesystem::path export_to{};  // folder for the export; empty: none
  bool resume = false;  // resume from the newest checkpoint of `run`, or start if there is none
  std::optional<std::filesystem::path> init_from{};  // folder with initial weights
  std::optional<std::filesystem::path> adapter{};    // PEFT folder with initial adapters
  std::string command{};                             // command line as typed, for the summary
  /// Commands that messages suggest, to resume or restart the run; "" if there are none.
  std::string resume_command{}, restart_command{};
  std::vector<std::string> notes{};          // shown before the first step
  std::vector<std::string> explicit_keys{};  // keys that cause a warning if they have no effect
  bool quiet = false;                        // prints only warnings and notes to the console
  /// Registry for checking the group `model`; empty disables the checks.
  const ModelRegistry* registry = &model_families();
  std::function<std::unique_ptr<Task>(const TrainingRunSettings&)> task = language_task;
  std::function<void(const StepRecord&)> on_step = {};  // called after each step
  const Interruption* interruption = nullptr;           // null: handles Ctrl-C and SIGTERM
  /// Null: a single process. Rank 0 uses the run's folder and the console, rank N ranks/N.
  Communicator* ranks = nullptr;
  int local_ranks = 1;  // ranks on this host, which share its cores
  int local_rank = 0;   // index of this rank on its host; device cuda or auto uses cuda:local_rank
};

enum class RunEnd { kFinished, kWasFinished, kInterrupted };

struct TrainingRunResult {
  RunEnd end = RunEnd::kFinished;
  RunSummary summary;        // empty if the run was already finished
  std::string summary_json;  // contents of summary.json
};

/// Trains to config.training.steps and prints progress to `console`. On Ctrl-C or SIGTERM, finishes
/// the step, saves and returns kInterrupted. Runs that end with an error still write summary and
/// report; diverged runs also write a checkpoint. Throws ConfigError, MissingInput, DataError,
/// CannotCreate, InUse, OutOfMemory, Diverged, and IoError, whose message names the newest
/// checkpoint.
TrainingRunResult run_training(const TrainingRunSettings& settings, std::ostream& console);

}  // namespace hybrid_trainer
