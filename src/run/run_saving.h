#pragma once

#include <string>

#include "hybrid_trainer/run/training_run.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "src/run/run_records.h"

namespace hybrid_trainer {

/// Saves a run's checkpoints into one folder. Where one cannot be saved, earlier ones stay.
class RunSaving {
 public:
  RunSaving(std::string folder, const TrainingRunSettings& settings);
  /// Saves the current step; false if that failed, which is told once. Of several ranks all save or
  /// none. A collective.
  bool save(HybridTrainer& trainer, RunRecords& records,
            CheckpointUse use = CheckpointUse::kResume);
  /// The same. Throws IoError, which names what a resumed run would continue from.
  void save_at_the_end(HybridTrainer& trainer, RunRecords& records);
  /// Saves what the last good update left, for an error that ends the run. A collective.
  void save_and_tell(HybridTrainer& trainer, RunRecords& records);
  /// How to go on from what is saved, in words.
  const std::string& way_on() const { return way_on_; }
  /// Of a run that was asked to stop: what is there, and how to go on.
  std::string stopped_text(std::int64_t steps_done, std::int64_t steps) const;

 private:
  std::string folder_, way_on_, way_to_start_;
  std::string problem_;  // of the last checkpoint, if it failed
};

}  // namespace hybrid_trainer
