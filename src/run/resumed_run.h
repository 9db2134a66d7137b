#pragma once

#include "hybrid_trainer/run/run_files.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/run/training_source.h"

namespace hybrid_trainer {

/// The configuration that the run in the folder was saved with. Throws ConfigError or DataError where
/// it cannot go on with `now` or with these data.
HybridTrainerConfig check_same_run(const RunPaths& run, const HybridTrainerConfig& now,
                                   const TrainingRunSettings& settings,
                                   const TrainingSource& source, const Tokenizer* tokenizer);

/// What the run's folder says of its data: also what model it began with, and which tokens end what
/// it writes. `tokenizer`: the run's.
RunData run_data(const RunPaths& run, const TrainingRunSettings& settings,
                 const TrainingSource& source, const Tokenizer* tokenizer, bool resumes);

}  // namespace hybrid_trainer
