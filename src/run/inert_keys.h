#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/trainer/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// What decides, beside the configuration, whether a key has an effect.
struct RunSurroundings {
  Device device;
  int ranks = 1;
};

/// One line for each of the keys, which were set explicitly, that changes nothing in this run: which
/// key it is, and why. Keys of elements of lists are not looked at.
std::vector<std::string> inert_settings(const HybridTrainerConfig& config,
                                        const std::vector<std::string>& keys,
                                        const RunSurroundings& run);

}  // namespace hybrid_trainer
