#pragma once

#include <map>
#include <string>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

struct Refusal;

/// Adds "KEY: got VALUE, but WHY (with CONTEXT); want WANTED" for each value that a row refuses.
/// `known` are values beside the configuration's own.
void collect_refusals(const std::vector<Refusal>& rows, const HybridTrainerConfig& config,
                      const std::string& context, std::vector<std::string>& found,
                      const std::map<std::string, std::string>& known = {});

/// Why a key has no effect with this configuration, by what the key and its groups need; "" if it has
/// one. Keys of elements of lists are not looked at. `known` are values beside the configuration's.
std::string why_inert(const std::string& key, const HybridTrainerConfig& config,
                      const std::map<std::string, std::string>& known);

/// Appends what is wrong with values that no range expresses, and with keys that do not go together.
void collect_cross_problems(const HybridTrainerConfig& config, std::vector<std::string>& found);

/// Throws one ConfigError with all that this many ranks cannot do; where there are fewer
/// micro-batches than ranks, with settings that keep the step's examples.
void check_ranks(const HybridTrainerConfig& config, int ranks);
/// Throws ConfigError where there are fewer micro-batches than ranks.
void check_micro_batches(const HybridTrainerConfig& config, int ranks);

}  // namespace hybrid_trainer
