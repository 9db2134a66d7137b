#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/io/run_directory.h"
#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/trainer/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// "0.1.0".
std::string project_version();

/// Where a run's training data is, and how long it is.
struct RunData {
  std::filesystem::path folder;
  std::int64_t train_tokens = 0;  // 0: a run older than this field
};

/// Writes what makes a run's folder self-contained: a copy of the data's tokenizer in tokenizer/,
/// data.json and, last, config.json. Throws IoError.
void write_run_files(const RunPaths& paths, const HybridTrainerConfig& config, const RunData& data);

/// What write_run_files wrote. Throw MissingInput where there is none, ConfigError, DataError.
HybridTrainerConfig config_of_run(const RunPaths& paths);
RunData data_of_run(const RunPaths& paths);
/// Null where the data had no tokenizer.
std::unique_ptr<Tokenizer> tokenizer_of_run(const RunPaths& paths);
/// Throws DataError where both are there and differ: ids of `data` would mean other text.
void check_same_tokenizer(const Tokenizer* of_run, const Tokenizer* of_data,
                          const std::filesystem::path& data);

/// How the run ended, as its summary.json says: "finished", "interrupted", "diverged" or "failed";
/// empty where there is none. Throws DataError.
std::string end_of_run(const RunPaths& paths);

/// A trained model as `eval`, `sample` and `export` use it.
struct TrainedRun {
  HybridTrainerConfig config;
  std::int64_t step = 0;                 // of the checkpoint that the weights are from
  std::filesystem::path data;            // where the run's data was
  std::unique_ptr<Tokenizer> tokenizer;  // null where the data had none
  std::unique_ptr<LanguageModel> model;
  std::vector<std::string> warnings;  // damaged checkpoints that were skipped
};

/// The last weights, or their mean over the last updates (training.average_weights).
enum class RunWeights { kLast, kAverage };

/// The weights of the newest intact checkpoint; if it was taken in Predict, the accepted ones from
/// before the prediction. `stream` must outlive the model. Throws MissingInput if there is no run
/// or no checkpoint, or it holds no average, ConfigError, DataError.
TrainedRun load_trained_run(const std::filesystem::path& run, const Stream& stream,
                            const ModelRegistry& registry = model_families(),
                            RunWeights weights = RunWeights::kLast);

}  // namespace hybrid_trainer
