#include "src/run/language_task.h"

#include "hybrid_trainer/core/error.h"
#include "src/run/text_data.h"
#include "src/run/text_outputs.h"
#include "src/run/text_score.h"

namespace hybrid_trainer {

namespace {

/// Returns "2 classes (x, y)" or "one output".
std::string class_list(const ModelConfig& model) {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> names;
  for (const ClassLabel& label : model.labels)
    if (names.size() < kShown) names.push_back(label.name);
  if (names.size() == 1) return "one output";
  const bool is_cut = names.size() < model.labels.size();
  return concat(model.labels.size(), " classes (", join(names), is_cut ? ", …)" : ")");
}

class TextTraining final : public LanguageTask {
 public:
  TextTraining(const TrainingRunSettings& settings, const ReadInputs& read)
      : LanguageTask(settings, read.model),
        data_(read.texts ? read.texts
                         : std::make_shared<TextData>(read_text_data(
                               example_files(settings, model_folder()), settings.config))),
        tokenizer_(data_->files.tokenizer.tokenizer()),
        config_(settings.config) {
    set_text_labels(config_, *data_);
    const ModelConfig &before = settings.config.model, &now = config_.model;
    if (!before.labels.empty() && !now.labels.empty() && before.labels != now.labels)
      replaced_head_ = concat("the folder's class head is replaced by a new one, because it has ",
                              class_list(before), ", but this run has ", class_list(now));
  }

  DatasetPart training(const HybridTrainerConfig& config) const override {
    return std::make_shared<PackedTexts>(data_->train, text_packing(config, *tokenizer_));
  }
  DatasetPart validation(const HybridTrainerConfig& config) const override {
    return std::make_shared<PackedTexts>(data_->validation, text_packing(config, *tokenizer_));
  }

 private:
  void set_data(HybridTrainerConfig& config) const override { set_text_labels(config, *data_); }
  std::optional<std::int64_t> vocabulary_size() const override {
    return tokenizer_->min_table_rows();
  }
  RunData described() const override {
    std::int64_t tokens = 0;
    for (const TextRow& row : data_->train) tokens += std::ssize(row.tokens);
    return {.folder = data_->files.examples,
            .train_tokens = tokens,
            .checksum = data_->checksum,
            .tokenizer = data_->files.tokenizer,
            .validation = data_->files.validation,
            .now = data_->files.now};
  }
  void check_data(const HybridTrainerConfig& config) const override {
    std::vector<std::string> problems;
    if (config.training.cuda_graphs)
      problems.emplace_back(
          "training.cuda_graphs: got true, want false: each step has another number of texts");
    if (!config.stages.empty())
      problems.emplace_back(
          "stages: not supported for examples of text-level tasks; leave them out");
    if (!problems.empty()) throw ConfigError(std::move(problems));
  }
  std::shared_ptr<const Tokenizer> tokenizer_for(std::int64_t vocabulary) const override {
    return tokenizer_of_data(data_->files.tokenizer, vocabulary);
  }
  std::vector<std::string> notes_of_data() const override {
    std::vector<std::string> notes = first_lines(data_->refused);
    notes.insert(notes.begin(),
                 concat("the data has ", data_->rows(),
                        data_->rows() == 1 ? " row: " : " rows: ", data_->train.size(),
                        " for training, ", data_->validation.size(), " for validation",
                        data_->validates_on_training_rows
                            ? "; both are the same rows, so the validation loss is a training loss"
                            : ""));
    notes.insert(notes.end(), data_->notes.begin(), data_->notes.end());
    if (!replaced_head_.empty()) notes.push_back(replaced_head_);
    if (config_.compares_examples() && compared_examples() < 2)
      notes.push_back(
          concat("texts.loss ", config_.texts.loss,
                 " compares the examples of a step, but most steps have only one, whose loss "
                 "is 0; raise data.batch_size, gradient_accumulation.micro_batches or "
                 "data.sequence_length"));
    return notes;
  }
  std::vector<std::string> closing(const HybridTrainerConfig& config, LossModel& model,
                                   const Stream& stream) const override {
    const PackedTexts texts(data_->validation, text_packing(config, *tokenizer_));
    const TextOutputs outputs = text_outputs(static_cast<LanguageModel&>(model), texts,
                                             config.data.batch_size, DType::kF32, stream);
    return {concat("validation: ", text_score(outputs, texts.rows(), config).text())};
  }

  /// Returns the mean number of examples in a step.
  double compared_examples() const {
    const PackedTexts texts(data_->train, text_packing(config_, *tokenizer_));
    return static_cast<double>(std::ssize(data_->train) * config_.effective_batch()) /
           static_cast<double>(texts.size());
  }

  std::shared_ptr<const TextData> data_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  HybridTrainerConfig config_;  // as given, with the labels of the data
  std::string replaced_head_;   // the reason why a folder's head is not used; else empty
};

}  // namespace

std::unique_ptr<Task> text_training(const TrainingRunSettings& settings, const ReadInputs& read) {
  return std::make_unique<TextTraining>(settings, read);
}

}  // namespace hybrid_trainer
