#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

struct State;

/// Differences between a resumed run's configuration and the saved one.
struct ConfigChanges {
  std::vector<std::string> accepted;  // allowed changes and their effects
  std::vector<std::string> refused;   // changes that would alter the meaning of the saved state
};

/// Compares key by key. Refuses a key unless its OnResume, or its group's, allows the change.
ConfigChanges config_changes(const HybridTrainerConfig& saved, const HybridTrainerConfig& now);

/// Describes a jump of the learning rate when a run continues after `steps_done` steps, and the
/// keys that avoid it; "" if there is none, during warmup, or if the rate itself was changed.
/// `factor`: rate_factor_of.
std::string learning_rate_jump(const HybridTrainerConfig& saved, const HybridTrainerConfig& now,
                               std::int64_t steps_done, double factor = 1);

/// Returns the factor of roll-backs and the rate finder on the schedule's rate, from a checkpoint.
double rate_factor_of(const State& state);

/// Throws ConfigError, naming each refused key with its saved and new value.
void check_changes(const ConfigChanges& changes);

}  // namespace hybrid_trainer
