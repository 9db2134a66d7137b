#pragma once

#include <string>

#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "src/trainer/run_records.h"

namespace hybrid_trainer {

/// Saves a run's checkpoints into one folder. Where one cannot be saved, earlier ones stay.
class RunSaving {
 public:
  explicit RunSaving(std::string folder) : folder_(std::move(folder)) {}
  /// Saves the current step; false if that failed, which is told once. Of several ranks all save or
  /// none. A collective.
  bool save(HybridTrainer& trainer, RunRecords& records);
  /// The same. Throws IoError, which names what a resumed run would continue from.
  void save_at_the_end(HybridTrainer& trainer, RunRecords& records);
  /// Saves what the last good update left, for an error that ends the run. A collective.
  void save_and_tell(HybridTrainer& trainer, RunRecords& records);

 private:
  std::string folder_;
  std::string problem_;  // of the last checkpoint, if it failed
};

}  // namespace hybrid_trainer
