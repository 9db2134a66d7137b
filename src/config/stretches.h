#pragma once

#include <optional>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/data/dataset.h"

namespace hybrid_trainer {

/// A stretch in steps, with what it leaves out filled in.
struct Stretch {
  std::int64_t first_step = 0;             // steps done before it
  BatchShape batch;                        // of a whole step
  std::optional<std::string> precision{};  // its name
  std::optional<std::int64_t> orthogonalization_period{};
  double rate_factor = 1;  // of the learning rate, by the tokens of a step
  bool operator==(const Stretch&) const = default;
};

/// What each step of a run is made of: the stretches, then the rest of the run.
class Stretches {
 public:
  explicit Stretches(const HybridTrainerConfig& config);
  /// Of the step after so many.
  const Stretch& at(std::int64_t steps_done) const;
  const std::vector<Stretch>& all() const { return stretches_; }  // the rest of the run is the last
  /// For the data's order.
  std::vector<BatchStretch> batches() const;

 private:
  std::vector<Stretch> stretches_;
};

/// Appends what the fields' ranges cannot express.
void collect_stretch_problems(const HybridTrainerConfig& config, std::vector<std::string>& found);

/// "64 sequences of 128 tokens", and precision and period where they are the stretch's own.
std::string text_of(const Stretch& stretch);

}  // namespace hybrid_trainer
