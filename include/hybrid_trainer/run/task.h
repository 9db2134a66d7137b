#pragma once

#include <filesystem>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/data/dataset.h"
#include "hybrid_trainer/files/run_directory.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/observability/model_texts.h"

namespace hybrid_trainer {

class Communicator;

/// A name and its value for comparison or display: {"training.threads", "2"}.
using NamedText = std::pair<std::string, std::string>;

/// Defines the data, the model with its loss, the evaluation and the export of a run. Each rank has
/// a separate task. All `model` arguments are the result of make_model.
class Task {
 public:
  virtual ~Task() = default;

  /// Completes the configuration from the data and the machine; returns it unchanged by default.
  /// Throws ConfigError if they are incompatible. Called once, before all other functions.
  virtual HybridTrainerConfig completed(HybridTrainerConfig config) { return config; }
  /// Makes the model with its initial weights, at their placements. Throws OutOfMemory.
  virtual std::unique_ptr<LossModel> make_model(const HybridTrainerConfig& config,
                                                MemoryPlaces& places) = 0;
  virtual DatasetPart training(const HybridTrainerConfig& config) const = 0;
  /// Returns the examples for the validation loss.
  virtual DatasetPart validation(const HybridTrainerConfig& config) const = 0;

  /// Exports the newest checkpoint to the new folder `output`. Throws CannotCreate, IoError.
  virtual void write_export(const RunPaths& run, const std::filesystem::path& output) const = 0;

  /// Returns the properties of data and initial weights that must be the same on all ranks.
  virtual std::vector<NamedText> facts() const { return {}; }
  /// Throws DataError if the resumed `run` was trained on other data.
  virtual void check_same(const RunPaths& /*run*/) const {}
  /// Writes config.json and other files of the run to `own`, this rank's folder. Throws IoError.
  virtual void write_files(const RunPaths& own, const RunPaths& run,
                           const HybridTrainerConfig& config, bool resumes) const;
  /// Returns the settings of data, model and batches to show before the first step.
  virtual std::vector<NamedText> settings(const HybridTrainerConfig& config,
                                          LossModel& model) const;
  /// Returns notes to show before the first step. `begins`: whether the weights are from
  /// make_model, not from a checkpoint.
  virtual std::vector<std::string> notes(bool /*begins*/) const { return {}; }
  struct RunStart {
    const HybridTrainerConfig& config;
    LossModel& model;      // with the weights from make_model, before any training
    const RunPaths& run;   // shared by all ranks
    bool resumes = false;  // a checkpoint will replace the weights
    const Stream& stream;
    Communicator* ranks = nullptr;
    std::function<void(const std::string&)> report;
  };
  /// Computes results of the initial model for batches, such as reference log-probabilities. Called
  /// on all ranks, before batches are read and the trainer allocates memory.
  virtual void prepare(const RunStart& /*start*/) {}
  /// Returns a sample of the model's output for the report, or "".
  virtual std::string sample(LossModel& /*model*/, const Stream& /*stream*/) const { return ""; }
  /// Returns the trained and the initial model's answers to prompts of the validation data.
  virtual std::vector<ComparedAnswer> answers(LossModel& /*model*/,
                                              const Stream& /*stream*/) const {
    return {};
  }
  /// Returns notes on the trained model, such as its quality, to show when the run has finished.
  virtual std::vector<std::string> closing(const HybridTrainerConfig& /*config*/,
                                           LossModel& /*model*/, const Stream& /*stream*/) const {
    return {};
  }
  /// Returns the registry used to simulate memory before allocation; null disables planning.
  virtual const ModelRegistry* simulated_by() const { return nullptr; }
};

}  // namespace hybrid_trainer
