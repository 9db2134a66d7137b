#pragma once

#include <boost/json/object.hpp>

#include "hybrid_trainer/run/task.h"
#include "src/run/language_data.h"
#include "src/run/run_files.h"
#include "src/tasks/prediction.h"

namespace hybrid_trainer {

struct Findings {
  std::string text;          // for display, without a final newline
  boost::json::object json;  // for programs
};

/// Function that prints a line in addition to the findings.
using MessageHandler = std::function<void(const std::string&)>;

struct Measuring {
  std::string folder{};          // folder of the run or model
  std::filesystem::path data{};  // empty: the run's held-out data
  std::string called{};          // name of `data` in messages; empty: its path
  std::string control_tokens{};  // data.control_tokens; empty: the run's
  std::int64_t length = 0;       // length of a window, maximum length of a row; 0: default
  MessageHandler report = [](const std::string&) {};
};

/// Arguments of `hybrid rows`: examples to show in the form that a model would train on.
struct RowsRequest {
  static constexpr std::int64_t kDefaultLength = 1024;
  std::string data{}, called{};  // a path, and its name in messages if that differs
  ModelFolder model{};           // model or run; empty: the configured model
  bool is_configured = false;    // configured by a preset, a file or settings
  std::string columns{}, control_tokens = "tokens", objective = "next_token";
  std::int64_t longest = kDefaultLength;
  std::optional<std::int64_t> shown{};  // number of the line, row or example to show, from 1
  MessageHandler report = [](const std::string&) {};
  bool is_of_run() const { return !model.empty() && RunPaths{model.string()}.contains_run(); }
};

/// Arguments of `hybrid predict`.
struct PredictionRequest {
  std::string folder{};          // folder of the run or model
  std::filesystem::path data{};  // rows as for training; they need no labels
  std::string called{};          // name of `data` in messages; empty: its path
  MessageHandler report = [](const std::string&) {};
};

/// How to train and evaluate language models or other networks, and how to show their data.
struct TaskKind {
  const char* unit;   // training unit: "tokens", "examples"
  bool in_sequences;  // a batch consists of sequences of units
  bool has_parts;     // a plan lists the memory of each part
  /// Makes the task from inputs that were already read.
  std::unique_ptr<Task> (*task)(const TrainingRunSettings& settings, const ReadInputs& read);
  /// Evaluates the model with compute precision `dtype`: "loss 2.1, perplexity 8.2 over 64 tokens".
  /// Throws UsageError, MissingInput, DataError, OutOfMemory, Diverged.
  Findings (*score)(const TrainedRun& run, const Measuring& on, DType dtype, const Stream& stream);
  /// Passes the predictions for all rows of the data to `use`, in their order. Throws UsageError if
  /// the model predicts tokens, DataError if a row cannot be used, and the errors of `score`.
  void (*predict)(const TrainedRun& run, const PredictionRequest& requested, DType dtype,
                  const Stream& stream, const PredictionHandler& use);
  /// Describes the training examples that a model of this configuration gets from the data, or a
  /// single example. Throws UsageError, MissingInput, DataError.
  Findings (*rows)(const RowsRequest& requested, const HybridTrainerConfig& config);
};

const TaskKind& task_kind(const ModelConfig& model,
                          const ModelRegistry& registry = model_families());

/// Reports the first rejected rows, and the number of further rejected rows.
void report_rejected_rows(const ReadRows& rows, const MessageHandler& report);

/// Describes the examples of a text-level objective.
Findings whole_text_rows(const RowsRequest& requested, const HybridTrainerConfig& config);

/// Implements TaskKind::predict for models that pool texts: one output per text or pair of texts.
void predict_texts(const TrainedRun& run, const PredictionRequest& requested, DType dtype,
                   const Stream& stream, const PredictionHandler& use);

/// Files of a retrieval benchmark in the form of read_retrieval_set, and the model's folder.
struct RetrievalRequest {
  std::string folder{}, corpus{}, queries{}, relevant{};
};

/// Embeds documents and queries, with the prompts of the model's folder if it has any. Ranks the
/// documents by cosine, or by dot product if the folder requires it, and rates the ranking. Throws
/// UsageError if the model does not embed texts; DataError for a folder with another similarity;
/// and as read_retrieval_set, text_outputs and score_retrieval.
Findings retrieval_findings(const TrainedRun& run, const RetrievalRequest& requested, DType dtype,
                            const Stream& stream);

/// Implements TaskKind::rows for a language model. Shows the tokens of each row.
Findings language_rows(const RowsRequest& requested, const HybridTrainerConfig& config);

}  // namespace hybrid_trainer
