#include "src/trainer/machine_setup.h"

namespace hybrid_trainer {

PhaseMachine::Setup machine_setup(const HybridTrainerConfig& config) {
  const PredictAwareMemoryConfig& memory = config.predict_aware_memory;
  return {.phases = config.phases,
          .divergence = config.divergence,
          .restore_lookahead = memory.async_restore ? memory.async_restore_lookahead : 0,
          .steps = config.training.steps,
          .learning_rate_finder = config.learning_rate_finder,
          .ramp_steps = config.schedule.warmup_steps};
}

}  // namespace hybrid_trainer
