#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/run/task.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/run/language_data.h"
#include "src/run/run_files.h"
#include "src/run/run_settings.h"

namespace hybrid_trainer {

/// Reads the data's tokenizer before the first step. Throws DataError (mismatch), MissingInput.
std::shared_ptr<const Tokenizer> tokenizer_of_data(const ModelFolder& data,
                                                   std::int64_t vocabulary);

/// Makes the task of a language model from inputs that were already read. Throws as language_task.
std::unique_ptr<Task> language_task(const TrainingRunSettings& settings, const ReadInputs& read);

/// Makes the task of text-level objectives. Throws as language_task and read_text_data.
std::unique_ptr<Task> text_training(const TrainingRunSettings& settings, const ReadInputs& read);

/// Base of the language modeling tasks, for data of any kind.
class LanguageTask : public Task {
 public:
  HybridTrainerConfig completed(HybridTrainerConfig config) final;
  std::unique_ptr<LossModel> make_model(const HybridTrainerConfig& config,
                                        MemoryPlaces& places) final;
  void write_export(const RunPaths& run, const std::filesystem::path& output) const final;
  std::vector<NamedText> facts() const final;
  void check_same(const RunPaths& run) const final;
  void write_files(const RunPaths& own, const RunPaths& run, const HybridTrainerConfig& config,
                   bool resumes) const final;
  std::vector<NamedText> settings(const HybridTrainerConfig& config, LossModel& model) const final;
  std::vector<std::string> notes(bool begins) const final;
  void prepare(const RunStart& start) final;
  std::string sample(LossModel& model, const Stream& stream) const final;
  const ModelRegistry* simulated_by() const final { return settings_.registry; }

 protected:
  explicit LanguageTask(const TrainingRunSettings& settings, const ModelFolder& model)
      : settings_(settings), model_(opened_model(settings, model)) {}
  const std::optional<ModelFolder>& model_folder() const { return model_; }
  /// Returns a precision in which generation does not convert frozen weights for each token.
  DType dtype_of_text() const;

 private:
  /// Returns the size that the model's vocabulary must have, or nullopt if it is unknown.
  virtual std::optional<std::int64_t> vocabulary_size() const = 0;
  /// Describes the data for the run's folder and for the comparison on resume.
  virtual RunData described() const = 0;
  /// Sets the values that the data determine, such as the classes of the model.
  virtual void set_data(HybridTrainerConfig&) const {}
  virtual void check_data(const HybridTrainerConfig&) const {}
  /// Returns null if the data have no tokenizer.
  virtual std::shared_ptr<const Tokenizer> tokenizer_for(std::int64_t vocabulary) const = 0;
  virtual std::vector<std::string> notes_of_data() const { return {}; }
  /// Computes values for the batches from the base model, while adapters have no effect yet.
  virtual void prepare_data(const RunStart& /*start*/) {}
  /// Stores the answers that the model gives before it is trained.
  virtual void answer_before(const RunStart& /*start*/) {}
  RunData run_data(const RunPaths& run, bool resumes) const;

  TrainingRunSettings settings_;
  std::optional<ModelFolder> model_;            // opened settings_.init_from
  std::shared_ptr<const Tokenizer> tokenizer_;  // for samples; null if the data have none
  std::optional<ModelFolder> base_;             // model with the initial weights
};

}  // namespace hybrid_trainer
