#pragma once

#include "src/data/examples/packed_texts.h"
#include "src/run/language_data.h"

namespace hybrid_trainer {

/// Returns the shortest sequence that holds any single row.
std::int64_t longest_row(std::span<const TextRow> rows);

/// Examples of text-level tasks for a run, and the files that they were read from.
struct TextData {
  ExampleFiles files;
  std::vector<TextRow> train{}, validation{};
  bool validates_on_training_rows = false;  // validation and training rows are the same
  LabelKind label_kind = LabelKind::kSingle;
  std::vector<std::string> class_names{};
  std::vector<std::string> refused{}, notes{};  // see ExampleData
  std::string form{}, checksum{};

  std::int64_t rows() const {
    return std::ssize(train) + (validates_on_training_rows ? 0 : std::ssize(validation));
  }
};

/// Label of a reward model's output in id2label. Reward models of other programs have LABEL_0.
inline constexpr const char* kRewardLabel = "reward";

/// Returns the task of an objective; none for objectives of tokens.
std::optional<TextTask> text_task_of(const std::string& objective);

/// Configures the task of a folder's model, if it is text-level: the classes of a model
/// "…ForSequenceClassification", or the pipeline of sentence-transformers. `adapter`: the folder of
/// an adapter over this model. A single output without a problem_type is a ranking score if
/// sentence-transformers saved the folder as a CrossEncoder or if the model is an encoder;
/// CrossEncoder opens such a model with a sigmoid. Otherwise, or with the label kRewardLabel, the
/// output is a reward. Throws DataError if the pipeline has parts that are not supported.
void take_text_task(const ModelFolder& folder, HybridTrainerConfig& config,
                    const ModelFolder& adapter = {});
/// Returns the objective of a folder's model: its text-level task, or "next_token".
std::string objective_of_folder(const ModelFolder& folder, const ModelConfig& model);
/// Sets an embedding model's pooling, linear layers and length from its sentence-transformers
/// files, or its pooling from a GGUF file. Does nothing without these. Throws as take_text_task.
void take_pipeline(const ModelFolder& folder, HybridTrainerConfig& config);

/// Returns the maximum tokens of a text for the model; longer texts are truncated.
std::int64_t text_limit(const HybridTrainerConfig& config);
/// Returns the maximum tokens of a text in the run's sequences.
std::int64_t text_length(const HybridTrainerConfig& config);

/// Reads the examples of a run whose objective is text-level. Keeps the classes of the model
/// (model.labels) if they include all classes of the data. With texts.loss "balanced", labels are
/// the weights of the classes. Throws as read_text_rows and read_examples, and ConfigError if the
/// labels do not fit the loss.
TextData read_text_data(const ExampleFiles& files, const HybridTrainerConfig& config);

/// Returns how to pack the rows of a run whose labels are resolved.
PackedTexts::Settings text_packing(const HybridTrainerConfig& config, const Tokenizer& tokenizer);
/// Returns the sequence length for evaluated rows: `usual`, or the longest row if that is longer.
std::int64_t fitted_length(std::span<const TextRow> rows, std::int64_t usual);

/// Sets the labels and outputs of the model that the data determine, unless they are set.
void set_text_labels(HybridTrainerConfig& config, const TextData& data);

}  // namespace hybrid_trainer
