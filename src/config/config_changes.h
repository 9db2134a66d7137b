#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

struct State;

/// Differences between a resumed run's configuration and its saved configuration.
struct ConfigChanges {
  std::vector<std::string> accepted;  // allowed changes and their effects
  std::vector<std::string> refused;   // changes that would alter the meaning of the saved state
};

/// Compares configurations. Refuses a change unless the OnResume of its key or group allows it.
ConfigChanges config_changes(const HybridTrainerConfig& saved, const HybridTrainerConfig& now);

/// Describes the jump of the learning rate when a run continues after `steps_done` steps, and the
/// keys that avoid it. Returns "" if there is no jump, during warmup, or if optimizer.learning_rate
/// itself was changed. `factor` is the result of rate_factor_of.
std::string learning_rate_jump(const HybridTrainerConfig& saved, const HybridTrainerConfig& now,
                               std::int64_t steps_done, double factor = 1);

/// Returns a checkpoint's factor on the schedule's rate, set by rollbacks and the rate finder.
double rate_factor_of(const State& state);

/// Throws ConfigError, naming each refused key with its saved and new value.
void check_changes(const ConfigChanges& changes);

}  // namespace hybrid_trainer
