#pragma once

#include <boost/json/object.hpp>

#include "hybrid_trainer/run/task.h"
#include "src/run/language_data.h"
#include "src/run/run_files.h"

namespace hybrid_trainer {

/// What a command has found.
struct Findings {
  std::string text;          // for people, without a newline at the end
  boost::json::object json;  // for programs
};

/// Prints a line beside the findings.
using Teller = std::function<void(const std::string&)>;

/// What a model is measured on.
struct Measuring {
  std::string folder{};          // of the run or the model
  std::filesystem::path data{};  // empty: what the run held back
  std::string called{};          // the name of `data` in messages, if that is not its path
  std::string control_tokens{};  // data.control_tokens; empty: the run's
  std::int64_t length = 0;       // of a window, and at most of a row; 0: the usual one
  Teller tell = [](const std::string&) {};
};

/// The examples of which is asked what a model would learn from them.
struct RowsAsked {
  static constexpr std::int64_t kUsualLength = 1024;
  std::string data{}, called{};  // a path; its name in messages, if that is another one
  ModelFolder model{};           // of a model or a run; empty: the configuration's
  bool is_configured = false;    // by a preset, a file or settings
  std::string columns{}, control_tokens = "tokens", objective = "next_token";
  std::int64_t longest = kUsualLength;
  std::optional<std::int64_t> shown{};  // a line, row or example, from 1
  Teller tell = [](const std::string&) {};
  bool is_of_run() const { return !model.empty() && RunPaths{model.string()}.hold_a_run(); }
};

/// What a run of a model trains, and how that is measured and shown: text, or the data of other
/// networks.
struct TaskKind {
  const char* unit;   // of what a step learns from: "tokens", "examples"
  bool in_sequences;  // a batch has sequences of so many units
  bool has_parts;     // of which a plan tells the memory one by one
  /// Makes the task of inputs that were read already.
  std::unique_ptr<Task> (*task)(const TrainingRunSettings& settings, const ReadInputs& read);
  /// Measures the model, which computes in `dtype`: "loss 2.1, perplexity 8.2 over 64 tokens". Throws
  /// UsageError, MissingInput, DataError, OutOfMemory, Diverged.
  Findings (*score)(const TrainedRun& run, const Measuring& on, DType dtype, const Stream& stream);
  /// What a model of this configuration would learn from the data, or from the example that is to be
  /// shown. Throws UsageError, MissingInput, DataError.
  Findings (*rows)(const RowsAsked& asked, const HybridTrainerConfig& config);
};

const TaskKind& task_kind(const ModelConfig& model,
                          const ModelRegistry& registry = model_families());

/// TaskKind::rows of a language model: what its tokenizer, or that of an encoder, makes of the rows.
Findings language_rows(const RowsAsked& asked, const HybridTrainerConfig& config);

}  // namespace hybrid_trainer
