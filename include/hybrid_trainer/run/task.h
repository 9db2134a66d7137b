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

/// Something with a name, as it is told or compared: {"training.threads", "2"}.
using NamedText = std::pair<std::string, std::string>;

/// What a run trains: its data, its model with the loss, its evaluation, and what it exports. Of
/// several ranks each has one. A model is the one that make_model made.
class Task {
 public:
  virtual ~Task() = default;

  /// The configuration with what data and machine say of it; by default as it is. Throws ConfigError
  /// where they do not go with it. Called once, before all others.
  virtual HybridTrainerConfig completed(HybridTrainerConfig config) { return config; }
  /// With its first weights, where `places` wants them. Throws OutOfMemory.
  virtual std::unique_ptr<LossModel> make_model(const HybridTrainerConfig& config,
                                                MemoryPlaces& places) = 0;
  /// Examples to train on.
  virtual DatasetPart training(const HybridTrainerConfig& config) const = 0;
  /// Examples that the run measures its loss on.
  virtual DatasetPart validation(const HybridTrainerConfig& config) const = 0;

  /// Writes the model of the run's newest checkpoint, as other programs open it, into the new folder
  /// `output`. Throws CannotCreate, IoError.
  virtual void write_export(const RunPaths& run, const std::filesystem::path& output) const = 0;

  /// Of data and first weights, what must be the same on all ranks.
  virtual std::vector<NamedText> facts() const { return {}; }
  /// Throws DataError where `run`, which goes on, was trained on other data.
  virtual void check_same(const RunPaths& /*run*/) const {}
  /// Writes config.json and what else the folder `own` of this rank shall hold beside checkpoints, so
  /// that it can be used without the data. `run`: that of all ranks, which `resumes`. Throws IoError.
  virtual void write_files(const RunPaths& own, const RunPaths& run,
                           const HybridTrainerConfig& config, bool resumes) const;
  /// What the user is shown of data, model and batches before the first step.
  virtual std::vector<NamedText> settings(const HybridTrainerConfig& config,
                                          LossModel& model) const;
  /// What the user should know before the first step. `begins`: the weights are make_model's.
  virtual std::vector<std::string> notes(bool /*begins*/) const { return {}; }
  /// What `prepare` is given.
  struct Beginning {
    const HybridTrainerConfig& config;
    LossModel& model;      // with make_model's weights, before any training
    const RunPaths& run;   // of all ranks
    bool goes_on = false;  // the weights are about to come from a checkpoint
    const Stream& stream;
    Communicator* ranks = nullptr;
    std::function<void(const std::string&)> tell;
  };
  /// Computes what batches need of the model as it begins, before any of them is read. Nothing of the
  /// trainer is in memory yet. Of several ranks all call it.
  virtual void prepare(const Beginning& /*beginning*/) {}
  /// Something that the trained model makes, for the report; "" where it makes no text.
  virtual std::string sample(LossModel& /*model*/, const Stream& /*stream*/) const { return ""; }
  /// What the trained model answers to prompts of its validation data, beside what it answered when
  /// `prepare` was called; empty where its data have no prompts.
  virtual std::vector<ComparedAnswer> answers(LossModel& /*model*/,
                                              const Stream& /*stream*/) const {
    return {};
  }
  /// What the user should know of the trained model once the run is finished, such as how good it is.
  virtual std::vector<std::string> closing(const HybridTrainerConfig& /*config*/,
                                           LossModel& /*model*/, const Stream& /*stream*/) const {
    return {};
  }
  /// By which config.model is simulated, so that memory is planned and compared with the machine's
  /// before it is taken; null: this model is not.
  virtual const ModelRegistry* simulated_by() const { return nullptr; }
};

}  // namespace hybrid_trainer
