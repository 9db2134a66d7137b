#pragma once

#include <boost/json/object.hpp>

#include "hybrid_trainer/run/task.h"
#include "src/run/language_data.h"
#include "src/run/run_files.h"

namespace hybrid_trainer {

/// How good a model was found to be.
struct Score {
  std::string text;          // "loss 2.1, perplexity 8.2 over 64 tokens"; may have several lines
  boost::json::object json;  // for programs
};

/// What a model is measured on.
struct Measuring {
  std::string folder{};          // of the run or the model
  std::filesystem::path data{};  // empty: what the run held back
  std::string called{};          // the name of `data` in messages, if that is not its path
  std::string control_tokens{};  // data.control_tokens; empty: the run's
  std::int64_t length = 0;       // of a window, and at most of a row; 0: the usual one
  std::function<void(const std::string&)> tell = [](const std::string&) {};
};

/// What a run of a model trains, and how it is measured: text, or the data of other networks.
struct TaskKind {
  const char* unit;  // of what a step learns from: "tokens", "examples"
  /// Makes the task of inputs that were read already.
  std::unique_ptr<Task> (*task)(const TrainingRunSettings& settings, const ReadInputs& read);
  /// Measures the model, which computes in `dtype`. Throws UsageError, MissingInput, DataError,
  /// OutOfMemory, Diverged.
  Score (*score)(const TrainedRun& run, const Measuring& on, DType dtype, const Stream& stream);
};

const TaskKind& task_kind(const ModelConfig& model,
                          const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
