#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer_config.h"

namespace hybrid_trainer {

/// Weights that one optimizer updates.
struct OptimizerGroup {
  OptimizerConfig config;            // without groups
  std::vector<std::size_t> members;  // indices of the parameters, in their order
};

/// Each parameter in exactly one group: those of config.groups, and the rest. What muon does not
/// take (all but matrices; of a group of its own, all but tensors of two dimensions) is adamw's,
/// with the same settings. Throws ConfigError for a group that matches nothing, with the nearest
/// role, and for two that match one parameter.
std::vector<OptimizerGroup> optimizer_groups(const OptimizerConfig& config,
                                             const std::vector<Parameter*>& parameters);

}  // namespace hybrid_trainer
