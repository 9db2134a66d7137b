#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/data/dataset.h"

namespace hybrid_trainer {

/// A schedule stage with defaults filled in.
struct Stage {
  std::int64_t first_step = 0;             // number of steps before the stage
  BatchShape batch;                        // shape of the whole step's batch
  std::optional<std::string> precision{};  // precision name
  std::optional<std::int64_t> orthogonalization_period{};
  double rate_factor = 1;  // factor on the learning rate, from the number of tokens per step
  bool operator==(const Stage&) const = default;
};

/// The schedule of a run: its stages, then the rest of the run.
class Stages {
 public:
  explicit Stages(const HybridTrainerConfig& config);
  const Stage& at(std::int64_t steps_done) const;
  const std::vector<Stage>& all() const { return stages_; }  // including the rest of the run
  /// Returns the stages that determine the order of the data.
  std::vector<BatchStage> batches() const;

 private:
  std::vector<Stage> stages_;
};

/// Adds problems that the fields' ranges cannot express.
void collect_stage_problems(const HybridTrainerConfig& config, std::vector<std::string>& found);

/// Returns "64 sequences of 128 tokens", with precision and period if the stage sets them.
std::string text_of(const Stage& stage);

}  // namespace hybrid_trainer
