#pragma once

#include <map>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

struct Refusal;

/// Adds "KEY: got VALUE, but WHY (with CONTEXT); want WANTED" for each value that a row refuses.
/// `known` has the values of keys that are not in the configuration.
void collect_refusals(const std::vector<Refusal>& rows, const HybridTrainerConfig& config,
                      const std::string& context, std::vector<std::string>& found,
                      const std::map<std::string, std::string>& known = {});

/// Returns the reason why a key has no effect, from the needs of the key and its groups, or "" if
/// the key has an effect. Ignores keys of list elements. `known`: see above.
std::string why_inert(const std::string& key, const HybridTrainerConfig& config,
                      const std::map<std::string, std::string>& known);

/// Adds problems that ranges cannot express: invalid values and incompatible keys.
void collect_cross_problems(const HybridTrainerConfig& config, std::vector<std::string>& found);

/// Throws one ConfigError with all settings that do not support this number of ranks. If there are
/// fewer micro-batches than ranks, suggests settings with the same number of examples per step.
void check_ranks(const HybridTrainerConfig& config, int ranks);
/// Throws ConfigError if there are fewer micro-batches than ranks.
void check_micro_batches(const HybridTrainerConfig& config, int ranks);

}  // namespace hybrid_trainer
