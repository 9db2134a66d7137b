#pragma once

#include <iosfwd>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/interruption.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/run/task.h"

namespace hybrid_trainer {

class Communicator;
struct TrainingRunSettings;

/// Language modelling, pretraining or fine-tuning: what `hybrid train` and `hybrid finetune` train.
/// Throws MissingInput, DataError, ConfigError.
std::unique_ptr<Task> language_task(const TrainingRunSettings& settings);

/// One training run from its data to its folder.
struct TrainingRunSettings {
  HybridTrainerConfig config;
  /// Of a language model: as `hybrid prepare` writes it, llm.c's shards, or a file of examples.
  std::filesystem::path data{};
  /// Beside a file of examples as data, another one to be measured on.
  std::filesystem::path validation{};
  /// Gets config.json, metrics.jsonl, summary.json, report.html and checkpoints/.
  std::filesystem::path run;
  /// Gets what the task exports, once the run is finished; empty: it is not exported.
  std::filesystem::path export_to{};
  bool resume = false;  // resume from the newest checkpoint of `run`, or start if there is none
  /// A Hugging Face folder to take a language model's first weights from.
  std::optional<std::filesystem::path> init_from{};
  /// A folder of PEFT to take the adapters' first values from; config.lora is what it says.
  std::optional<std::filesystem::path> adapter{};
  std::string command{};  // as it was typed, for the summary
  /// Commands to resume the run, and to start it again if it may have left a folder but no
  /// checkpoint. For messages; "" where nobody typed anything.
  std::string resume_command{}, restart_command{};
  std::vector<std::string> notes{};          // told before the first step
  std::vector<std::string> explicit_keys{};  // that were set: told where one has no effect
  bool quiet = false;                        // the console gets warnings and notes, no progress
  /// With an empty one the group `model` is not checked: the task has a model of its own.
  const ModelRegistry* registry = &model_families();
  /// Makes what is trained.
  std::function<std::unique_ptr<Task>(const TrainingRunSettings&)> task = language_task;
  std::function<void(const StepRecord&)> on_step = {};  // called after each step
  /// Who may ask for a stop; null: Ctrl-C and SIGTERM do, while the run lasts.
  const Interruption* interruption = nullptr;
  /// The ranks that this run is one of, each of which runs it with the same settings; null: alone.
  /// Rank 0 has the run's folder and console, the others ranks/N in it.
  Communicator* ranks = nullptr;
  int local_ranks = 1;  // of them on this host, which share its cores where training.threads is 0
  int local_rank = 0;   // which of them this is; the devices cuda and auto are then cuda:local_rank
};

enum class RunEnd { kFinished, kWasFinished, kInterrupted };

struct TrainingRunResult {
  RunEnd end = RunEnd::kFinished;
  RunSummary summary;        // empty where the run was finished before
  std::string summary_json;  // what summary.json holds
};

/// Trains to config.training.steps, with progress on `console`. Ctrl-C and SIGTERM finish the step,
/// save and return kInterrupted. Everything is checked before the run's folder is created. A run
/// that ends with an error still writes its summary and report, and one that diverges a checkpoint.
/// Throws ConfigError, MissingInput, DataError, CannotCreate, InUse, IoError (the last steps are
/// not saved; the message names the newest checkpoint), OutOfMemory, Diverged.
TrainingRunResult run_training(const TrainingRunSettings& settings, std::ostream& console);

}  // namespace hybrid_trainer
