#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/trainer/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// How the configuration of a run that goes on differs from the one that its state was saved under.
struct ConfigChanges {
  std::vector<std::string> told;     // allowed, and what comes of each
  std::vector<std::string> refused;  // the saved state means something else under them
};

/// Compares key by key. What a key may change is in one table of the source; any other is refused.
ConfigChanges config_changes(const HybridTrainerConfig& saved, const HybridTrainerConfig& now);

/// Throws ConfigError that names each refused key with the saved and the new value.
void check_changes(const ConfigChanges& changes);

}  // namespace hybrid_trainer
