#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/data/batch_loader.h"
#include "hybrid_trainer/run/run_files.h"
#include "hybrid_trainer/run/training_run.h"

namespace hybrid_trainer {

/// What a run learns from.
class TrainingSource {
 public:
  virtual ~TrainingSource() = default;
  /// Tokens that the model must know; none where nothing says it.
  virtual std::optional<std::int64_t> vocabulary_size() const = 0;
  /// As the run's folder shall name it, and as a resumed run compares it.
  virtual RunData described() const = 0;
  /// Throws ConfigError of settings that these data cannot go with.
  virtual void check(const HybridTrainerConfig&) const {}
  /// Null where the data have none.
  virtual std::unique_ptr<Tokenizer> tokenizer(std::int64_t vocabulary) const = 0;
  virtual std::unique_ptr<const BatchSource> batches(const HybridTrainerConfig& config) const = 0;
  virtual std::unique_ptr<EvaluationBatches> validation(const HybridTrainerConfig& config,
                                                        const Stream& stream) const = 0;
  /// What the user should know of the data before the first step.
  virtual std::vector<std::string> notes() const { return {}; }
};

/// Of settings.data: a folder as `hybrid prepare` writes it, or a file of examples, encoded with the
/// tokenizer of the run or else of settings.init_from. Throws MissingInput, DataError.
std::unique_ptr<const TrainingSource> open_training_source(const TrainingRunSettings& settings);

/// Throws DataError where a run that was trained on `before` would find another place in `here`.
void check_same_data(const RunData& before, const RunData& here);

}  // namespace hybrid_trainer
