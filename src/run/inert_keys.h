#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// What decides, beside the configuration, whether a key has an effect.
struct RunSurroundings {
  Device device;
  int ranks = 1;
};

/// One line for each reason why keys that were set explicitly change nothing in this run: which keys,
/// by the names they were set by, and the reason. A name of several keys is told where none of them
/// changes anything. Keys of elements of lists are not looked at.
std::vector<std::string> inert_settings(const HybridTrainerConfig& config,
                                        const std::vector<std::string>& names,
                                        const RunSurroundings& run);

}  // namespace hybrid_trainer
