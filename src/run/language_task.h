#pragma once

#include "hybrid_trainer/run/task.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/run/training_source.h"

namespace hybrid_trainer {

/// Language modelling: pretraining on text, or fine-tuning on examples.
class LanguageTask final : public Task {
 public:
  explicit LanguageTask(const TrainingRunSettings& settings);

  HybridTrainerConfig completed(HybridTrainerConfig config) override;
  std::unique_ptr<LossModel> make_model(const HybridTrainerConfig& config,
                                        MemoryPlaces& places) override;
  std::unique_ptr<const BatchSource> batches(const HybridTrainerConfig& config) const override {
    return source_->batches(config);
  }
  std::unique_ptr<EvaluationBatches> evaluation(const HybridTrainerConfig& config,
                                                const Stream& stream) const override {
    return source_->validation(config, stream);
  }
  std::vector<NamedText> facts() const override;
  void check_same(const RunPaths& run) const override;
  void write_files(const RunPaths& own, const RunPaths& run, const HybridTrainerConfig& config,
                   bool resumes) const override;
  std::vector<NamedText> settings(const HybridTrainerConfig& config,
                                  LossModel& model) const override;
  std::vector<std::string> notes(bool begins) const override;
  std::string sample(LossModel& model, const Stream& stream) const override;
  const ModelRegistry* simulated_by() const override { return settings_.registry; }

 private:
  RunData run_data(const RunPaths& run, bool resumes) const;
  TrainingRunSettings settings_;
  std::unique_ptr<const TrainingSource> source_;
  std::unique_ptr<Tokenizer> tokenizer_;       // of the sample, if the data have one
  std::optional<std::filesystem::path> base_;  // of the weights that the model began with
};

}  // namespace hybrid_trainer
