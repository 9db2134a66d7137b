#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/run/task.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/run/language_data.h"
#include "src/run/run_files.h"
#include "src/run/run_settings.h"

namespace hybrid_trainer {

/// Before the first step: a tokenizer that does not fit is told before hours are spent. Throws
/// DataError, MissingInput.
std::shared_ptr<const Tokenizer> tokenizer_of_data(const ModelFolder& data,
                                                   std::int64_t vocabulary);

/// Makes the task of a language model, which does not read these inputs again. Throws as language_task.
std::unique_ptr<Task> language_task(const TrainingRunSettings& settings, const ReadInputs& read);

/// Language modelling, whatever its data are.
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
  void prepare(const Beginning& beginning) final;
  std::string sample(LossModel& model, const Stream& stream) const final;
  const ModelRegistry* simulated_by() const final { return settings_.registry; }

 protected:
  /// `model`: settings.init_from, which may have been opened before.
  explicit LanguageTask(const TrainingRunSettings& settings, const ModelFolder& model)
      : settings_(settings), model_(opened_model(settings, model)) {}
  /// The folder that the run takes its first weights from.
  const std::optional<ModelFolder>& model_folder() const { return model_; }
  /// Of text that the model writes: frozen weights are not converted once more for each token.
  DType dtype_of_text() const;

 private:
  /// Tokens that the model must know; none where nothing says it.
  virtual std::optional<std::int64_t> vocabulary_size() const = 0;
  /// The data as the run's folder names them, and as a resumed run compares them.
  virtual RunData described() const = 0;
  /// Throws ConfigError of settings that these data cannot go with.
  virtual void check_data(const HybridTrainerConfig&) const {}
  /// Null where the data have none.
  virtual std::shared_ptr<const Tokenizer> tokenizer_for(std::int64_t vocabulary) const = 0;
  virtual std::vector<std::string> notes_of_data() const { return {}; }
  /// Computes what batches need of the base, whose adapters change nothing yet.
  virtual void prepare_data(const Beginning& /*beginning*/) {}
  /// Keeps what the model answers before it is trained.
  virtual void answer_before(const Beginning& /*beginning*/) {}
  RunData run_data(const RunPaths& run, bool resumes) const;

  TrainingRunSettings settings_;
  std::optional<ModelFolder> model_;            // settings_.init_from
  std::shared_ptr<const Tokenizer> tokenizer_;  // of the sample, if the data have one
  std::optional<ModelFolder> base_;             // of the weights that the model began with
};

}  // namespace hybrid_trainer
