#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/phases/phase_machine.h"

namespace hybrid_trainer {

/// What a run's configuration means for the machine of its phases.
PhaseMachine::Setup machine_setup(const HybridTrainerConfig& config);

}  // namespace hybrid_trainer
