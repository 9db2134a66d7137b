#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

struct State;

/// How a resumed run's configuration differs from the one that its state was saved under.
struct ConfigChanges {
  std::vector<std::string> told;     // allowed changes, and what comes of each
  std::vector<std::string> refused;  // changes that would alter what the saved state means
};

/// Compares key by key. A key is refused unless its OnResume, or that of its group, lets it change.
ConfigChanges config_changes(const HybridTrainerConfig& saved, const HybridTrainerConfig& now);

/// What makes the learning rate jump where a run of `steps_done` steps goes on, and which keys keep
/// it; "" where it moves on as the schedule did. A run in its warm-up, or with the rate itself
/// changed, is left alone. `factor`: rate_factor_of.
std::string learning_rate_jump(const HybridTrainerConfig& saved, const HybridTrainerConfig& now,
                               std::int64_t steps_done, double factor = 1);

/// What roll-backs and the rate finder multiply the schedule's rate by, as a checkpoint has it.
double rate_factor_of(const State& state);

/// Throws ConfigError that names each refused key with the saved and the new value.
void check_changes(const ConfigChanges& changes);

}  // namespace hybrid_trainer
