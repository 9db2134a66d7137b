#pragma once

#include <string>
#include <utility>
#include <vector>

#include "hybrid_trainer/trainer/hybrid_trainer.h"

namespace hybrid_trainer {

/// What a user wants to see before the first step, one setting per line: the task's `rows`, a name and a
/// text each, then
/// optimizer, phases, precision and machine.
std::string settings_table(std::vector<std::pair<std::string, std::string>> rows,
                           const HybridTrainerConfig& config, const HybridTrainer& trainer,
                           const Stream& stream);

}  // namespace hybrid_trainer
