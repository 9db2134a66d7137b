#pragma once

#include "hybrid_trainer/run/training_run.h"

namespace hybrid_trainer {

/// The settings of a run that goes on, which has its weights from its checkpoint or, where there is
/// none yet, from the folders that it began from; those of a run that begins are left as they are.
TrainingRunSettings with_base(TrainingRunSettings settings);

}  // namespace hybrid_trainer
